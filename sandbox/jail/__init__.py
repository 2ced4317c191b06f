"""The jail of the process sandbox: a separate program that runs a command apart from this host.

The program uses the standard library only. With namespaces, the command gets its own processes, network (without
interfaces but loopback, which is down unless the command asks for it), System V IPC, host name, and root folder:
read-only views of the system's programs and of the Python installation, a private /proc, a bounded /tmp, and nothing
else of this host. Without namespaces, the command is an ordinary process in a session of its own. In both cases every
process that the command leaves behind is killed before the program ends.
"""
