"""The same study over many hosts: who there is, who does what, and what comes back."""
