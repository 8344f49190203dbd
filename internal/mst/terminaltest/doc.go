// Package terminaltest has a terminal for tests: a program runs on it as it would
// for a person, who types and reads the screen.
package terminaltest
