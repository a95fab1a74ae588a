"""The same study on many hosts: which hosts there are, who does what, and what comes back."""
