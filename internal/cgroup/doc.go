// Package cgroup puts each worker into a control group of its own (cgroup v2)
// below a root that an operator or systemd has delegated: the kernel then
// enforces the worker's memory ceiling, kills the whole tree at once, and says
// when it is gone.
//
// A Root is a folder of the cgroup file system in which this process may make
// groups. A Group is made with its limits before any process is in it; processes
// are started straight into it (Group.FD with SysProcAttr.UseCgroupFD) or moved
// (Group.Add). Killing is asynchronous: Kill, WaitEmpty, Remove.
//
// What needs which kernel:
//
//	4.5   cgroup v2 with the memory controller
//	4.19  memory.oom.group: all or nothing of a group is killed
//	5.7   CLONE_INTO_CGROUP: a process is never outside its group
//	5.14  cgroup.kill: no process can fork its way out
//	5.19  memory.peak
//
// Open demands cgroup.kill, a limit demands memory.max, memory.swap.max and
// memory.oom.group. The one exception: a kernel built without swap has no
// memory.swap.max (nor /proc/swaps) and needs none. A root without the memory
// controller can still hold groups without limits, which is enough to kill a
// tree and to know that it is gone.
//
// Who may start a process in a group: the kernel wants write access to
// cgroup.procs of the group and of the nearest common ancestor of the old group
// and the new one. An unprivileged host therefore has to run below the root
// already, in a leaf next to the groups (by custom ROOT/host), because a group
// that hands out controllers cannot hold processes itself.
//
// Reference: Documentation/admin-guide/cgroup-v2.rst.
package cgroup
