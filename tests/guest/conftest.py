"""Keep the host from collecting what runs in the guest.

The modules in inside/ offline a CPU, mount control groups and expect two NUMA nodes: they belong to
a machine that is thrown away. The guest's tree leaves this file out (tree.py), and so they are
collected there.
"""

collect_ignore = ["inside"]
