"""The commands: each turns a request into a study, a verification, or advice."""
