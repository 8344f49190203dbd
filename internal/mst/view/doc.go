// Package view is how sandboxes and hosts are shown to people: columns, ages,
// tables, orders and filters, for the commands and the console alike. Its
// functions are pure, and what they give is safe to show on a terminal.
package view
