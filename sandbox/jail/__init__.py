"""What stands between a command and this host in the process sandbox: a program of its own, standard library only.

With namespaces, the command gets its own processes, network (none), System V IPC, host name and a root of its own:
read-only views of the system's programs and of the Python installation, a private /proc, a bounded /tmp, and nothing
else of this host. Without, it is an ordinary process in a session of its own. Either way every process that it leaves
behind is killed before the program ends.
"""
