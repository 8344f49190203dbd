// Package helper starts the helper processes of a host, which are the host's
// own program executed again, and finds out at the start of a program that it
// is one.
//
// A helper is told by the first of its arguments, which the host alone chooses,
// together with the socket that it was given as descriptor 3. It runs before
// the host's own main function, and ends the process.
//
// What a helper gets from its host is what it was given: the descriptors listed,
// a few environment variables, the root folder to work in. Descriptors that the
// host lets its children inherit by mistake are closed first.
package helper
