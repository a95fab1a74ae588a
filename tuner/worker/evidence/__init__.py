"""What is in force in this process, as the kernel, the loader and the libraries have it.

Echoing the environment is no evidence: each module here looks at what a setting was to change.

process    mapped libraries, threads, CPUs, memory policy
allocator  whose malloc is in use, and how it is tuned
openmp     which OpenMP runtime is in use, and its own account of its settings
variables  environment variables that no library of the process can read
output     what libraries print
"""
