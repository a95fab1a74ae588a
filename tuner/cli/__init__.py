"""The command line: one file per command; prints, exit codes, nothing else."""
