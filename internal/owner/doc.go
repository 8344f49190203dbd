// Package owner makes one host process the owner of a namespace of sandboxes.
//
// Ownership is an exclusive flock(2) on a file that its owner alone may read and
// nobody may write: whoever holds an open descriptor of the locked file owns
// the namespace, and the kernel takes ownership back when the last copy of the
// descriptor is closed, however its process ends. Nothing that is written
// anywhere, such as a process number in a file, is ever taken for the truth.
//
// The rules, and why:
//
//   - The file appears under its name complete, with its mode, without
//     replacing another: written under a temporary name in the same folder, then
//     renameat2 with RENAME_NOREPLACE (Linux 3.15). Nobody can find it with other
//     rights in between, whatever the umask.
//   - It is opened for reading only, without following a link and without
//     waiting (a FIFO in its place would block), and has to be a regular file
//     with exactly one name.
//   - After locking, the name is looked at again: if it leads to another file by
//     now, somebody replaced it, and two processes could each hold a lock of
//     "the" file. That is an error, not a reason to try again.
//   - The file of a namespace is never removed, for the same reason.
//   - A lock is held until all its holders have let go. The supervisor inherits
//     the descriptor (Lock.File) and so keeps the namespace until the last
//     worker is confirmed gone, even if the host has died.
//   - Descriptors are close-on-exec: a program started by the host owns nothing
//     unless it was given the file. A process made by a bare fork (no exec)
//     would share the lock; Go programs cannot make one, and Lock.Owns tells a
//     copy of the process that it is not the owner.
//
// Whoever can open the file can hold the lock, and whoever made it, or owns its
// folder, can take it away from under its name. So the usual folder (Folder) and
// its files are the user's alone, namespaces are each user's own, and a file of
// another user is refused wherever it is. A namespace for several users is an
// operator's decision: a folder that is root's, with a file that root has made
// for all who are to read it; each of them can then keep the others out.
//
// A flock belongs to the open file, so it works between threads, users and
// containers that see the same file, and it is local to the machine: folders on
// network file systems are refused by nobody here, but are no place for it.
package owner
