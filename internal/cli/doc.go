// Package cli holds what the commands of maf-sandbox share: the machine they
// run Python in, what they are given, flag values, and the one table from
// error class to exit status. Each command is a package of its own below it;
// package root puts them together.
//
// Commands return errors. Nobody but main exits.
package cli
