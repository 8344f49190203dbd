package egresstest

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"slices"
	"sync"
	"testing"

	"golang.org/x/net/dns/dnsmessage"
)

// Lie is what is wrong with a name server's replies. Zero is nothing.
type Lie uint8

// The lies.
const (
	// LieNone: replies are as they should be.
	LieNone Lie = iota
	// LieAlias: the name is an alias of another one, whose addresses are given.
	LieAlias
	// LieNoName: there is no such name, with addresses all the same.
	LieNoName
	// LieNumber: the reply has the number of another query.
	LieNumber
	// LieQuestion: the reply is to a question that was not asked.
	LieQuestion
)

// Alias is the name of which LieAlias makes every other one an alias.
const Alias = "inner.example."

// NameServer is a DNS server on loopback, over UDP, whose every name has the
// addresses that a test says. All methods may be called at the same time.
type NameServer struct {
	conn net.PacketConn

	mu sync.Mutex // guards what follows
	// turns are the addresses for one lookup each; the last ones stay.
	turns [][]netip.Addr
	lie   Lie
	asked []string
	// times counts the questions of each type since the last change.
	times map[dnsmessage.Type]int
}

// NewNameServer starts a server that ends with the test. Without addresses no
// name exists.
func NewNameServer(t testing.TB, addresses ...string) *NameServer {
	t.Helper()
	conn, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &NameServer{conn: conn}
	s.Say(addresses...)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		buf := make([]byte, 1500)
		for {
			n, from, err := conn.ReadFrom(buf)
			if err != nil {
				return
			}
			if reply, err := s.reply(buf[:n]); err == nil {
				_, _ = conn.WriteTo(reply, from)
			}
		}
	}()
	t.Cleanup(func() {
		_ = conn.Close()
		<-ended
	})
	return s
}

// Say gives every name these addresses from now on, truthfully, and forgets what
// was asked. An address that is none is a panic.
func (s *NameServer) Say(addresses ...string) { s.SayInTurn(addresses) }

// SayInTurn is Say with other addresses for each lookup of a name; the last ones
// stay. A lookup asks once for each family.
func (s *NameServer) SayInTurn(turns ...[]string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.turns, s.lie, s.asked, s.times = nil, LieNone, nil, map[dnsmessage.Type]int{}
	for _, addresses := range turns {
		var parsed []netip.Addr
		for _, a := range addresses {
			parsed = append(parsed, netip.MustParseAddr(a))
		}
		s.turns = append(s.turns, parsed)
	}
}

// Lie has replies be wrong until the next Say.
func (s *NameServer) Lie(lie Lie) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lie = lie
}

// Questions are what was asked since the last Say, such as "A api.example.com.",
// sorted.
func (s *NameServer) Questions() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Sorted(slices.Values(s.asked))
}

// Resolver asks this server alone.
func (s *NameServer) Resolver() *net.Resolver {
	return &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, "udp", s.conn.LocalAddr().String())
	}}
}

func (s *NameServer) reply(query []byte) ([]byte, error) {
	var m dnsmessage.Message
	if err := m.Unpack(query); err != nil || len(m.Questions) != 1 {
		return nil, errors.Join(err, errors.New("no question"))
	}
	question := m.Questions[0]
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asked = append(s.asked, question.Type.String()[len("Type"):]+" "+question.Name.String())
	addresses := s.turns[min(s.times[question.Type], len(s.turns)-1)]
	s.times[question.Type]++

	m.Response, m.Authoritative, m.Additionals = true, true, nil
	if len(addresses) == 0 || s.lie == LieNoName {
		m.RCode = dnsmessage.RCodeNameError
	}
	owner := question.Name
	header := func() dnsmessage.ResourceHeader {
		return dnsmessage.ResourceHeader{Name: owner, Class: dnsmessage.ClassINET}
	}
	switch s.lie {
	case LieNone, LieNoName:
	case LieAlias:
		alias := dnsmessage.MustNewName(Alias)
		m.Answers = append(m.Answers, dnsmessage.Resource{Header: header(), Body: &dnsmessage.CNAMEResource{CNAME: alias}})
		owner = alias
	case LieNumber:
		m.ID++
	case LieQuestion:
		m.Questions[0].Name = dnsmessage.MustNewName(Alias)
	}
	for _, addr := range addresses {
		switch {
		case addr.Is4() && question.Type == dnsmessage.TypeA:
			m.Answers = append(m.Answers, dnsmessage.Resource{Header: header(), Body: &dnsmessage.AResource{A: addr.As4()}})
		case addr.Is6() && question.Type == dnsmessage.TypeAAAA:
			m.Answers = append(m.Answers, dnsmessage.Resource{Header: header(), Body: &dnsmessage.AAAAResource{AAAA: addr.As16()}})
		}
	}
	return m.Pack()
}
