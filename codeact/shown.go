package codeact

import (
	"fmt"
	"unicode/utf8"
)

// MinShown is the least Config.MaxShown, in bytes: less shows nothing of use.
const MinShown = 256

// Shown is what a report shows of what the program printed, and how many bytes it
// leaves out.
func (o Outcome) Shown() (stdout, stderr string, leftOut int) {
	stdout, n := excerpt(o.Stdout, o.maxShown)
	stderr, m := excerpt(o.Stderr, o.maxShown)
	return stdout, stderr, n + m
}

// excerpt is the beginning and the end of a text of more bytes than most, which zero
// does not bound, with a line between them that says how many it leaves out. What a
// program prints first says what it is about, and what it prints last how it ended.
func excerpt(text string, most int) (shown string, leftOut int) {
	if most == 0 || len(text) <= most {
		return text, 0
	}
	head, tail := most-most/2, len(text)-most/2
	// Whole characters; at most three bytes of one are before any place.
	for head > 0 && !utf8.RuneStart(text[head]) {
		head--
	}
	for tail < len(text) && !utf8.RuneStart(text[tail]) {
		tail++
	}
	leftOut = tail - head
	return fmt.Sprintf("%s\n[%d bytes left out here]\n%s", text[:head], leftOut, text[tail:]), leftOut
}
