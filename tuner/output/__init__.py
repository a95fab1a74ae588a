"""What a study leaves behind: the result, its reports, and files to ship."""
