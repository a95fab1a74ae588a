"""What is in force in this process, according to the kernel, the loader and the libraries.

Echoing the environment is no evidence: each module looks at what a setting should change.

process    mapped libraries, threads, CPUs, memory policy allocator  the malloc in use, and its
tuning openmp     the OpenMP runtime in use, and its own report of its settings variables
environment variables that no library of the process can read output     what libraries print
"""
