"""What this machine is and what it allows this process to use."""
