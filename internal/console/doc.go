// Package console is the operator's live view of the sandboxes on this machine:
// a table of all hosts' sandboxes, the details of one, and dialogs that have
// exactly that one, or a whole conversation, disposed of.
//
// It is one Bubble Tea model. Update alone changes state and does no work;
// commands talk to hosts; what is on the screen is made by pure functions from
// state and size. A selection is an identity and never a row number, and every
// key is in one table, which the help is made from.
package console
