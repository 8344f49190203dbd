package mcp

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"sync"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/maf-sandbox/maf-sandbox-go/codeact"
	"github.com/maf-sandbox/maf-sandbox-go/control/fence"
	"github.com/maf-sandbox/maf-sandbox-go/router"
	"github.com/maf-sandbox/maf-sandbox-go/sandbox"
)

// The names by which clients know the server and its second tool; the first is
// codeact.Name.
const (
	ServerName = "maf-sandbox"
	ResetName  = "reset_sandbox"
)

// Bounds and defaults.
const (
	// MaxMessage bounds a message of a client, in bytes: a program of the
	// backend's default of 1 MiB, each byte of which JSON may write as six.
	MaxMessage = 8 << 20
	// DefaultProgress is how often a client hears of a program that runs.
	DefaultProgress = 2 * time.Second
)

// Config says what a server serves.
type Config struct {
	// Router serves the sandboxes. It stays the caller's, and so do its backends.
	Router *router.Router
	// KeepState has the programs of a session find what earlier ones left. The
	// router should then reset after calls, not dispose: a reset_sandbox is the
	// end of a call.
	KeepState bool
	// Tool is what execute_code is like; AgentID, Caller, KeepsState, Shape and
	// Logger are filled in. None of its Tools may ask for approval: the server can
	// ask nobody, and whether a client does is the client's affair.
	Tool codeact.Config
	// Facts, when not nil, gives what Tool.Facts leaves open, or nothing when ctx is
	// over before it is known. Clients' lists of tools wait for it, each for FactsTime
	// at most, until it is known; it may be called at the same time.
	Facts func(ctx context.Context) sandbox.Facts
	// FactsTime is DefaultFactsTime when zero.
	FactsTime time.Duration
	// Version is this program's, for clients.
	Version string
	// Progress is how often a client that asked for it hears of a program that
	// runs; DefaultProgress when zero.
	Progress time.Duration
	// Logger hears of sessions and failures; nobody when nil. It gets no text of
	// programs or of what they print.
	Logger *slog.Logger
}

// Server serves sessions. All methods may be called at the same time.
type Server struct {
	config Config
	sdk    *sdk.Server
	// life ends when the server closes.
	life context.Context
	end  context.CancelFunc
	// fence has every program inside that runs.
	fence fence.Fence
	// ended waits for the end of every session.
	ended sync.WaitGroup

	mu     sync.Mutex
	closed bool // guarded by mu
	// facts are what clients are told of the sandboxes; guarded by mu.
	facts sandbox.Facts
	// sessions are those that have had a call; nil stands for one that has been
	// stopped before its first, which may be on its way. Guarded by mu.
	sessions map[*sdk.ServerSession]*session
}

// New makes a server. Nothing is started. Errors are those of codeact.NewTool, and
// a *sandbox.RefusalError for tools of the host that ask for approval.
func New(c Config) (*Server, error) {
	c.Progress, c.FactsTime = cmp.Or(c.Progress, DefaultProgress), cmp.Or(c.FactsTime, DefaultFactsTime)
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	s := &Server{config: c, facts: c.Tool.Facts, sessions: map[*sdk.ServerSession]*session{}}
	// What clients are told of the tool is the same in every session.
	model, err := s.newSession("", nil)
	if err != nil {
		return nil, err
	}
	if model.tool.ApprovalRequired() {
		return nil, refuseAsking(c.Tool.Tools)
	}
	s.life, s.end = context.WithCancel(context.Background())
	s.sdk = sdk.NewServer(
		&sdk.Implementation{Name: ServerName, Title: "Python sandbox", Version: c.Version},
		&sdk.ServerOptions{
			Instructions: "Run Python with " + codeact.Name + ", in a sandbox of this session's own. " + ResetName + " puts it back to its start.",
			Logger:       slog.New(quiet{c.Logger.Handler()}),
			Capabilities: &sdk.ServerCapabilities{Tools: &sdk.ToolCapabilities{}},
		},
	)
	s.sdk.AddReceivingMiddleware(s.informed)
	s.addProgramTool(model.tool)
	s.addResetTool()
	return s, nil
}

// refuseAsking says which tools of the host ask for approval.
func refuseAsking(tools []sandbox.Tool) error {
	var asking []string
	for i := range tools {
		if tools[i].RequiresApproval || tools[i].Identity == sandbox.IdentityUser {
			asking = append(asking, fmt.Sprintf("%q", tools[i].Name))
		}
	}
	return &sandbox.RefusalError{
		Reason: sandbox.ErrNotSupported, Subject: "config.Tool.Tools", Asked: "a person's approval for " + strings.Join(asking, ", "),
		Allowed: "tools that need none, since an MCP server can ask nobody before a program calls them", Decider: "package mcp",
	}
}

// Serve serves one client over a transport until its session ends or ctx is
// over; then what runs is stopped, and the sandbox is gone when Serve returns.
// A client that closes its end in good order is no error. Its calls are served in
// the order in which they arrive.
func (s *Server) Serve(ctx context.Context, t sdk.Transport) error {
	return s.serve(ctx, s.arriving(t))
}

func (s *Server) arriving(t sdk.Transport) sdk.Transport {
	return arriving{t, new(line), s.config.Logger}
}

// serve is Serve of a transport that gives calls their places.
func (s *Server) serve(ctx context.Context, t sdk.Transport) error {
	ss, err := s.sdk.Connect(ctx, t, nil)
	if err != nil {
		return err
	}
	closed := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(closed)
		s.close(ss)
	})
	err = ss.Wait()
	if !stop() {
		<-closed
	}
	s.finish(ss)
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}

// ServeStreams serves one client that writes to in and reads from out, a message
// a line of at most MaxMessage bytes. A line that is none is answered with an error
// of JSON-RPC. When in has ended, what came before may be answered for drainTime
// more. An out that takes nothing holds nothing up for longer than that after the end
// of ctx or of the server, or of in as far as it is read; a Write of it that is under
// way then is left behind.
func (s *Server) ServeStreams(ctx context.Context, in io.Reader, out io.Writer) error {
	answers := newWhole(out)
	for _, life := range []context.Context{ctx, s.life} {
		defer context.AfterFunc(life, func() {
			time.AfterFunc(drainTime, func() { _ = answers.Close() })
		})()
	}
	messages := newLines(in, answers, MaxMessage, s.config.Logger)
	// Lines are bounded already.
	streams := &sdk.IOTransport{Reader: io.NopCloser(messages), Writer: answers, MaxLineLength: -1}
	return s.serve(ctx, draining{s.arriving(streams), drainTime})
}

// Close ends every session and waits until its sandbox is gone, as far as the
// router's bounds allow. Later calls are refused.
func (s *Server) Close() {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.end()
	for ss := range s.sdk.Sessions() {
		s.close(ss)
	}
	s.ended.Wait()
}

// cancel stops what runs in a session, and what would. finish must follow, unless the
// server is closed.
func (s *Server) cancel(ss *sdk.ServerSession) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if of := s.sessions[ss]; of != nil {
		of.end()
		return
	}
	s.sessions[ss] = nil
}

// close ends a session: what runs in it first, since the session waits for its
// answers.
func (s *Server) close(ss *sdk.ServerSession) {
	s.cancel(ss)
	_ = ss.Close() // it is over either way
}

// named finds a session by the id under which its client knows it; nil if there
// is none.
func (s *Server) named(id string) *sdk.ServerSession {
	for ss := range s.sdk.Sessions() {
		if id != "" && ss.ID() == id {
			return ss
		}
	}
	return nil
}

// live counts the sessions.
func (s *Server) live() (n int) {
	for range s.sdk.Sessions() {
		n++
	}
	return n
}

var errClosed = errors.New("the server is closing")

// session gives the session's side of the sandboxes; its end is awaited from
// the first call on, which came as told. The error is errClosed, errOver or that of
// codeact.NewTool.
func (s *Server) session(ss *sdk.ServerSession, came *arrival) (*session, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, errClosed
	}
	if of, known := s.sessions[ss]; of != nil {
		return of, nil
	} else if known {
		return nil, errOver
	}
	var l *line
	if came != nil {
		l = came.line
	}
	of, err := s.newSession(clientName(ss), l)
	if err != nil {
		return nil, err
	}
	of.life, of.end = context.WithCancel(s.life)
	s.sessions[ss] = of
	s.ended.Go(func() {
		_ = ss.Wait() // why it ended is the transport's affair
		s.finish(ss)
	})
	return of, nil
}

// finish waits until nothing of a session that has ended is left.
func (s *Server) finish(ss *sdk.ServerSession) {
	s.mu.Lock()
	of := s.sessions[ss]
	s.mu.Unlock()
	if of != nil {
		of.finish()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.sessions[ss] == of { // not another one's, of a client whose end was refused
		delete(s.sessions, ss)
	}
}

// clientName is what a client calls itself; empty when it has not said.
func clientName(ss *sdk.ServerSession) string {
	if params := ss.InitializeParams(); params != nil && params.ClientInfo != nil {
		return params.ClientInfo.Name
	}
	return ""
}

// Quiesce stops the program that runs under a key, waits for its end and keeps
// others from starting until release. A program that was stopped is told to the
// model as one whose sandbox is gone, and the next one gets another sandbox. The
// error is ctx's, and then nothing is kept from starting.
func (s *Server) Quiesce(ctx context.Context, key sandbox.Key) (release func(), err error) {
	return s.fence.Hold(ctx, key)
}

// Purge disposes of the sandbox of a session, which goes on with another one,
// after the end of the program in it. What its programs have printed its client can
// ask for again over HTTP, as long as the session lasts. The error is ctx's, and then
// nothing was disposed of.
func (s *Server) Purge(ctx context.Context, scope, threadID string) (sandbox.ScopePurge, error) {
	release, err := s.fence.HoldThread(ctx, scope, threadID)
	if err != nil {
		return sandbox.ScopePurge{}, err
	}
	defer release()
	return s.config.Router.DisposeScope(ctx, scope, threadID), nil
}

// newSession makes a session of a client that has not begun, whose calls are in a
// line; nil stands for a new one. Precondition: mu is held, or nobody has the server
// yet.
func (s *Server) newSession(client string, l *line) (*session, error) {
	of := newSession(s.config, &s.fence, client, l)
	c := s.config.Tool
	c.AgentID, c.KeepsState, c.Shape, c.Facts, c.Logger = of.key.AgentID, s.config.KeepState, codeact.ShapePlain, s.facts, s.config.Logger
	c.Caller = func(context.Context) codeact.Caller {
		return codeact.Caller{Scope: of.key.Scope, ThreadID: of.key.ThreadID}
	}
	tool, err := codeact.NewTool(of, c)
	if err != nil {
		return nil, err
	}
	of.tool = tool
	return of, nil
}
