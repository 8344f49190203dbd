// Package streams owns the program's standard input, output and error: what
// they are connected to, how wide the terminal is, how a failed write is
// reported, and that no guest byte reaches a terminal raw.
package streams
