// Package command is the command line of mst: one file for each command, which
// parses and works apart; one table from classes of errors to exit statuses.
//
// The words, exit statuses and JSON are those of the Python program of the same
// name, so that scripts go on to work.
package command
