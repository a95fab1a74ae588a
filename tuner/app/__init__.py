"""What the commands do: from a request to what a study, a proof or advice leaves behind."""
