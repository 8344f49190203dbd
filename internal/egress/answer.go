package egress

import (
	"errors"
	"io"
)

// Room says whether the answer to one request may take n bytes of the host's
// memory from now on, which is more or less than it took before. It is asked
// before the memory is allocated, by one goroutine at a time, and less than before
// is always granted. What the last call said counts until whoever gave the
// function takes it back.
type Room func(n int) bool

// errNoRoom ends an answer for which there is no room.
var errNoRoom = errors.New("no room for the answer")

const (
	// smallAnswer is allocated at once, in bytes, when an answer does not say how
	// long it is.
	smallAnswer = 4 << 10
	// announced bounds what is allocated at once because an answer says that it is
	// so long; more has to arrive first.
	announced = 32 << 10
)

// collector takes an answer in as it arrives, in the one piece of memory in which
// it goes on.
type collector struct {
	room Room
	// whole has the header before the body.
	whole bool
	bytes []byte
}

// begin takes the header of an answer.
func (c *collector) begin(response *Response) *Error {
	if !c.whole {
		return nil
	}
	header, failure := encodeHeader(response)
	if failure != nil {
		return failure
	}
	c.bytes = header
	return nil
}

// read takes the body, at most limit bytes and one more, which tells that there
// are too many. The length is what the answer announced, below 0 if it did not.
func (c *collector) read(from io.Reader, length, limit int64) (body []byte, err error) {
	start := len(c.bytes)
	most := start + int(limit) + 1
	next := smallAnswer
	if length >= 0 {
		// One more byte finds the end.
		most = start + int(min(length, limit)) + 1
		next = int(min(length+1, announced))
	}
	if err := c.grow(min(start+next, most)); err != nil {
		return nil, err
	}
	for len(c.bytes) < most {
		if len(c.bytes) == cap(c.bytes) {
			if err := c.grow(min(2*cap(c.bytes), most)); err != nil {
				return nil, err
			}
		}
		n, err := from.Read(c.bytes[len(c.bytes):min(cap(c.bytes), most)])
		c.bytes = c.bytes[:len(c.bytes)+n]
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return c.bytes[start:], err
		}
	}
	return c.bytes[start:], nil
}

// grow makes room for n bytes in all. While they are copied, the memory is there
// twice.
func (c *collector) grow(n int) error {
	if c.room != nil && !c.room(cap(c.bytes)+n) {
		return errNoRoom
	}
	grown := make([]byte, len(c.bytes), n)
	copy(grown, c.bytes)
	c.bytes = grown
	if c.room != nil {
		c.room(n)
	}
	return nil
}
