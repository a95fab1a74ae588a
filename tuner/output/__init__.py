"""The files of a study: the result, its reports, and files to ship."""
