package console

import "regexp"

// deviceQuestion is a question that terminals of every kind answer (primary
// device attributes, DA1 of ECMA-48 and xterm). They answer in order, so
// whatever was asked before is answered by then.
const deviceQuestion = "\x1b[c"

var deviceAnswer = regexp.MustCompile(`^\x1b\[\?[0-9;]*c$`)

// maxSequence bounds a control sequence that may be the answer.
const maxSequence = 64

// answerFinder looks for the answer to deviceQuestion in what a terminal sends.
type answerFinder struct{ sequence []byte }

// add takes the next byte and says whether the answer ends with it.
func (f *answerFinder) add(b byte) bool {
	if b == '\x1b' || len(f.sequence) == maxSequence {
		f.sequence = f.sequence[:0]
	}
	f.sequence = append(f.sequence, b)
	return b == 'c' && deviceAnswer.Match(f.sequence)
}
