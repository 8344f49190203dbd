package repl

import "strings"

// scan is the part of Python's tokenizer that tells whether a logical line is
// over: it knows strings, brackets, comments and backslashes.
type scan struct {
	depth  int    // of open brackets
	quote  string // that closes the open string; empty outside
	joined bool   // the last line ended in a backslash

	first string // word or character that the logical line began with
	last  byte   // significant character that it ended with, outside strings
}

// open says whether the next line belongs to the same logical line.
func (s *scan) open() bool { return s.depth > 0 || s.quote != "" || s.joined }

// comment says whether the logical line held nothing but a comment.
func (s *scan) comment() bool { return s.first == "" }

// line takes the next physical line, without its line break.
func (s *scan) line(text string) {
	if !s.open() {
		s.first, s.last = "", 0
		if !isBlank(text) {
			s.first = firstWord(text)
		}
	}
	s.joined = false
	for i := 0; i < len(text); {
		if s.quote != "" {
			i = s.inString(text, i)
		} else {
			i = s.outside(text, i)
		}
	}
	// A string in single quotes ends with its line, whatever the guest will
	// have to say about that.
	if len(s.quote) == 1 && !s.joined {
		s.quote = ""
	}
}

func (s *scan) inString(text string, i int) int {
	switch {
	case text[i] == '\\':
		s.joined = i+1 == len(text) && len(s.quote) == 1
		return i + 2
	case strings.HasPrefix(text[i:], s.quote):
		i += len(s.quote)
		s.quote = ""
		return i
	}
	return i + 1
}

func (s *scan) outside(text string, i int) int {
	c := text[i]
	switch c {
	case ' ', '\t', '\f', '\r':
		return i + 1
	case '#':
		return len(text)
	case '\\':
		s.joined = strings.TrimRight(text[i+1:], "\r") == ""
		return i + 1
	case '"', '\'':
		s.quote = string(c)
		if triple := strings.Repeat(s.quote, 3); strings.HasPrefix(text[i:], triple) {
			s.quote = triple
		}
		s.last = c
		return i + len(s.quote)
	case '(', '[', '{':
		s.depth++
	case ')', ']', '}':
		s.depth = max(0, s.depth-1)
	}
	s.last = c
	return i + 1
}
