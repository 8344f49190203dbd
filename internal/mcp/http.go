package mcp

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
)

// Path is where the protocol is served; everything else is not found.
const Path = "/mcp"

// Bounds and defaults of serving over HTTP.
const (
	// DefaultMaxSessions is how many sessions there may be at once: each may have
	// a sandbox and its memory.
	DefaultMaxSessions = 16
	// DefaultIdle is how long a session may be silent. A client that vanishes says
	// nothing, and its connection may have been closed long before.
	DefaultIdle = 30 * time.Minute
	// maxHeader bounds the headers of a request, in bytes.
	maxHeader = 32 << 10
	// readTimeout bounds how long a request may take to arrive.
	readTimeout = 30 * time.Second
	// writeTimeout bounds how long a client may take for a part of an answer.
	writeTimeout = 30 * time.Second
	// placeTimeout bounds how long a new session waits for others to have begun or
	// ended.
	placeTimeout = 2 * time.Second
	// keepAlive bounds how long a connection may be silent between requests.
	keepAlive = 2 * time.Minute
	// shutdownTimeout bounds how long answers on their way may take when the
	// server ends.
	shutdownTimeout = 5 * time.Second
)

// sessionHeader names the session of a request, in the protocol.
const sessionHeader = "Mcp-Session-Id"

// HTTP says how a server is served over HTTP.
type HTTP struct {
	// Token is what a request must bear; empty asks for none, and then only
	// requests to a loopback name are served.
	Token string
	// Origins are the web origins whose pages may make requests, such as
	// "https://agents.example"; a page of the server's own origin always may.
	Origins []string
	// MaxSessions and Idle bound the sessions; zero means DefaultMaxSessions and
	// DefaultIdle.
	MaxSessions int
	Idle        time.Duration
}

// ListenAddress checks an address of the form host:port and says whether it is
// of this machine alone.
func ListenAddress(address string) (loopback bool, err error) {
	host, port, err := net.SplitHostPort(address)
	if err != nil || port == "" {
		return false, fmt.Errorf("%q is no address: want host:port, such as 127.0.0.1:8080", address)
	}
	// A word is the name of a service.
	if n, err := strconv.Atoi(port); err == nil && (n < 0 || n > math.MaxUint16) {
		return false, fmt.Errorf("%q is no address: a port is from 0 to %d", address, math.MaxUint16)
	}
	return isLoopback(host), nil
}

// isLoopback says whether a host without a port is this machine, by its text: a
// name that is looked up could be anything at the next look.
func isLoopback(host string) bool {
	if strings.EqualFold(host, "localhost") {
		return true
	}
	ip := net.ParseIP(strings.Trim(host, "[]"))
	return ip != nil && ip.IsLoopback()
}

// ServeHTTP serves clients at a listener, which it closes, until ctx is over.
// Then sessions end, and their sandboxes are gone when it returns.
func (s *Server) ServeHTTP(ctx context.Context, l net.Listener, h HTTP) error {
	server := &http.Server{
		Handler: s.Handler(h), ReadHeaderTimeout: readTimeout, IdleTimeout: keepAlive, MaxHeaderBytes: maxHeader,
		ErrorLog: slog.NewLogLogger(s.config.Logger.Handler(), slog.LevelWarn),
	}
	served := make(chan error, 1)
	go func() { served <- server.Serve(l) }()
	var err error
	select {
	case err = <-served:
		served <- nil // for below
	case <-ctx.Done():
		err = context.Cause(ctx)
	}
	ending, cancel := context.WithTimeout(context.WithoutCancel(ctx), shutdownTimeout)
	defer cancel()
	// Sessions wait for their answers; whoever is left then does not read its own.
	defer context.AfterFunc(ending, func() { _ = server.Close() })()
	s.Close() // streams stay open as long as their sessions
	_ = server.Shutdown(ending)
	if ended := <-served; ended != nil && !errors.Is(ended, http.ErrServerClosed) {
		err = errors.Join(err, ended)
	}
	return err
}

// Handler serves the protocol's streamable HTTP at Path.
func (s *Server) Handler(h HTTP) http.Handler {
	g := &gate{
		server: s, http: h, token: sha256.Sum256([]byte(h.Token)), released: make(chan struct{}),
		next: sdk.NewStreamableHTTPHandler(func(*http.Request) *sdk.Server { return s.sdk }, &sdk.StreamableHTTPOptions{
			Logger: slog.New(quiet{s.config.Logger.Handler()}), EventStore: newReplay(),
			SessionTimeout: cmp.Or(h.Idle, DefaultIdle), MaxRequestBodyBytes: MaxMessage,
			DisableLocalhostProtection: true, // the gate's own knows of tokens
		}),
	}
	mux := http.NewServeMux()
	mux.Handle(Path, g)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		p := paced{w, http.NewResponseController(w)}
		p.extend()
		defer p.extend() // for what net/http has left to write
		mux.ServeHTTP(p, r)
	})
}

// paced gives a client a while to take each part of its answer. The server's own
// deadline is for whole answers, and would end the streams; without one, a client
// that does not read would keep its request, and whoever waits for it, for ever.
type paced struct {
	http.ResponseWriter
	connection *http.ResponseController
}

func (p paced) extend() {
	_ = p.connection.SetWriteDeadline(time.Now().Add(writeTimeout)) // a test's recorder has none
}

// Unwrap lets http.ResponseController through.
func (p paced) Unwrap() http.ResponseWriter { return p.ResponseWriter }

func (p paced) Write(b []byte) (int, error) {
	p.extend()
	return p.ResponseWriter.Write(b)
}

// FlushError is Flush of http.ResponseController.
func (p paced) FlushError() error {
	p.extend()
	return p.connection.Flush()
}

// gate lets requests in.
type gate struct {
	server *Server
	http   HTTP
	token  [sha256.Size]byte
	next   http.Handler
	gets   gets
	mu     sync.Mutex
	// beginning counts requests that may begin a session and are not over.
	beginning int
	released  chan struct{} // closed when it has become less
}

// refusal is an answer of the gate's own.
type refusal struct {
	status int
	text   string
}

func (g *gate) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	err := g.serve(w, r)
	if err == nil {
		return
	}
	g.server.config.Logger.Warn("a request was refused", "status", err.status, "reason", err.text, "remote", r.RemoteAddr)
	if err.status == http.StatusUnauthorized {
		w.Header().Set("WWW-Authenticate", "Bearer")
	}
	// Or net/http would wait for the rest of the body before it answers.
	w.Header().Set("Connection", "close")
	http.Error(w, err.text, err.status)
}

func (g *gate) serve(w http.ResponseWriter, r *http.Request) *refusal {
	if err := g.refuse(r); err != nil {
		return err
	}
	body, err := receive(w, r)
	if err != nil {
		return err
	}
	if r.Method == http.MethodPost {
		// What is no message is the SDK's to refuse.
		if message, err := jsonrpc.DecodeMessage(body); err == nil && checkID(message) != nil {
			return &refusal{http.StatusBadRequest, errID.Error()}
		}
	}
	switch {
	case g.share(w, r) && r.Method == http.MethodOptions:
		w.WriteHeader(http.StatusNoContent)
	case r.Method == http.MethodGet:
		return g.get(w, r)
	case r.Method == http.MethodDelete:
		g.delete(w, r)
	case r.Method == http.MethodPost && r.Header.Get(sessionHeader) == "":
		return g.start(w, r, body)
	default:
		g.next.ServeHTTP(w, r)
	}
	return nil
}

// refuse says why a request is not served, before its body is looked at.
func (g *gate) refuse(r *http.Request) *refusal {
	host := r.Host
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	switch {
	case g.http.Token == "" && !isLoopback(host):
		// A page whose name was pointed at this machine (DNS rebinding) is of the
		// same origin as its requests; only the name tells.
		return &refusal{http.StatusForbidden, fmt.Sprintf("this server is for this machine: it does not go by the name of %.100q", r.Host)}
	case !g.allowsOrigin(r):
		return &refusal{http.StatusForbidden, fmt.Sprintf("the origin %.100q is not allowed", r.Header.Get("Origin"))}
	case r.Method != http.MethodOptions && !g.authorised(r):
		// A browser asks by OPTIONS whether it may send the token at all.
		return &refusal{http.StatusUnauthorized, "a bearer token is needed"}
	}
	return nil
}

// allowsOrigin says whether the page that made a request may. Programs other
// than browsers send no origin.
func (g *gate) allowsOrigin(r *http.Request) bool {
	origins := r.Header.Values("Origin")
	switch {
	case len(origins) == 0:
		return true
	case len(origins) > 1:
		return false
	case slices.Contains(g.http.Origins, origins[0]):
		return true
	}
	u, err := url.Parse(origins[0])
	return err == nil && u.Scheme == "http" && u.Host != "" && u.Host == r.Host
}

// share tells the browser of a page of a named origin that the page may send
// what the protocol needs and read the answer (CORS), and says whether there is
// one. Precondition: the origin is allowed.
func (g *gate) share(w http.ResponseWriter, r *http.Request) bool {
	origin := r.Header.Get("Origin")
	if !slices.Contains(g.http.Origins, origin) {
		return false
	}
	h := w.Header()
	h.Set("Access-Control-Allow-Origin", origin)
	h.Set("Access-Control-Expose-Headers", sessionHeader)
	h.Add("Vary", "Origin")
	if r.Method == http.MethodOptions {
		h.Set("Access-Control-Allow-Methods", "GET, POST, DELETE")
		h.Set("Access-Control-Allow-Headers", "Accept, Authorization, Content-Type, Last-Event-ID, MCP-Protocol-Version, "+sessionHeader)
	}
	return true
}

func (g *gate) authorised(r *http.Request) bool {
	if g.http.Token == "" {
		return true
	}
	scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	sum := sha256.Sum256([]byte(token))
	return strings.EqualFold(scheme, "Bearer") && subtle.ConstantTimeCompare(sum[:], g.token[:]) == 1
}

// receive reads the body, so that one that is too long or too slow is refused
// before anything is begun for it. The deadline is not the server's own for all
// requests: that one would end the streams of answers as well.
func receive(w http.ResponseWriter, r *http.Request) ([]byte, *refusal) {
	if r.ContentLength > MaxMessage {
		return nil, &refusal{http.StatusRequestEntityTooLarge, fmt.Sprintf("a message may have %d bytes", MaxMessage)}
	}
	connection := http.NewResponseController(w)
	_ = connection.SetReadDeadline(time.Now().Add(readTimeout)) // a test's recorder has none
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, MaxMessage))
	_ = connection.SetReadDeadline(time.Time{})
	var long *http.MaxBytesError
	switch {
	case errors.As(err, &long):
		return nil, &refusal{http.StatusRequestEntityTooLarge, fmt.Sprintf("a message may have %d bytes", MaxMessage)}
	case err != nil:
		return nil, &refusal{http.StatusBadRequest, "the message did not arrive"}
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	return body, nil
}

// start serves a request outside a session: one that begins a session, or asks
// which protocol is spoken here and so has a session that ends with it.
func (g *gate) start(w http.ResponseWriter, r *http.Request, body []byte) *refusal {
	if trimmed := bytes.TrimLeft(body, " \t\r\n"); len(trimmed) > 0 && trimmed[0] == '[' {
		// The protocol wants initialize to be alone, and a program beside it would
		// keep others from beginning.
		return &refusal{http.StatusBadRequest, "a session begins with initialize alone"}
	}
	if limit := cmp.Or(g.http.MaxSessions, DefaultMaxSessions); !g.reserve(r.Context(), limit) {
		return &refusal{http.StatusServiceUnavailable, fmt.Sprintf("there are %d sessions, which is the limit: end one first", limit)}
	}
	defer g.release()
	g.next.ServeHTTP(w, r)
	return nil
}

// reserve takes a place for a session to be. A session that has begun while its
// request is still being answered has two, and one that ends with its request has
// one until then: who finds no place waits a moment for those.
func (g *gate) reserve(ctx context.Context, limit int) bool {
	ctx, cancel := context.WithTimeout(ctx, placeTimeout)
	defer cancel()
	for {
		g.mu.Lock()
		if g.server.live()+g.beginning < limit {
			g.beginning++
			g.mu.Unlock()
			return true
		}
		wait, released := g.beginning > 0, g.released
		g.mu.Unlock()
		if !wait {
			return false
		}
		select {
		case <-released:
		case <-ctx.Done():
			return false
		}
	}
}

func (g *gate) release() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.beginning--
	close(g.released)
	g.released = make(chan struct{})
}

// delete ends a session. What runs in it is stopped first, since the session
// waits for its answers; and the sandbox is gone before the client is told.
func (g *gate) delete(w http.ResponseWriter, r *http.Request) {
	ss := g.server.named(r.Header.Get(sessionHeader))
	if ss != nil {
		g.server.cancel(ss)
	}
	g.next.ServeHTTP(w, r)
	if ss != nil {
		g.server.finish(ss)
	}
}
