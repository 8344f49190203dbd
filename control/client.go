package control

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"time"

	"github.com/maf-sandbox/maf-sandbox-go/control/internal/wirejson"
	"github.com/maf-sandbox/maf-sandbox-go/internal/speakfirst"
)

// Bounds of a client.
const (
	// DefaultHostTimeout is the time of a question to one host.
	DefaultHostTimeout = 5 * time.Second
	// MaxResponseBytes bounds an answer: an inventory of 10,000 sandboxes has 4
	// to 8 MiB.
	MaxResponseBytes = 32 << 20
	// MaxInventory bounds the records of one host.
	MaxInventory = 50_000
	// maxMessageBytes bounds a host's message in an error or result.
	maxMessageBytes = 4 << 10
	// transportTime is what a host has beyond the time-out that it was asked
	// to keep.
	transportTime = 5 * time.Second
)

// HostError says that a host could not be asked or gave no usable answer.
type HostError struct {
	// SourceID is the host's name, as it was announced.
	SourceID string
	// Status is the HTTP status of a refusal; 0 when there was no answer.
	Status int
	// Message is one sentence. It may be the host's own: foreign text, of
	// bounded length.
	Message string
	// Cause is the error behind it, if any.
	Cause error
}

// Error is the message.
func (e *HostError) Error() string { return e.Message }

// Unwrap gives the cause.
func (e *HostError) Unwrap() error { return e.Cause }

// Client is the [Control] of one host, over HTTP. It follows no redirect, uses
// no proxy, and believes no size.
type Client struct {
	manifest  Manifest
	authority string
	timeout   time.Duration
	dial      func(context.Context) (net.Conn, error)
	http      *http.Client
}

var _ Control = (*Client)(nil)

// NewClient makes a client of a host. Besides the endpoint, a manifest that an
// operator typed needs a SourceID as a label only; its ProcessID is then zero,
// and who answers is not compared with it. The error is an [*EndpointError].
func NewClient(manifest Manifest) (*Client, error) {
	address, err := parseEndpoint(manifest.Endpoint)
	if err != nil {
		return nil, err
	}
	c := &Client{manifest: manifest, authority: address.String(), timeout: DefaultHostTimeout, dial: dialer(manifest, address)}
	c.http = &http.Client{
		Transport: &http.Transport{
			// Connections are not kept: the next question may be hours
			// away, and a console should hold nothing of a host's.
			DisableKeepAlives:      true,
			DisableCompression:     true,
			MaxResponseHeaderBytes: 64 << 10,
			// What the request says does not count.
			DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
				conn, err := c.dial(ctx)
				if err != nil {
					return nil, err
				}
				return speakfirst.Conn(conn), nil
			},
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	return c, nil
}

// dialer connects to the socket when there is one, else to the address.
func dialer(manifest Manifest, address netip.AddrPort) func(context.Context) (net.Conn, error) {
	return func(ctx context.Context) (net.Conn, error) {
		return connectAlive(manifest.Announcement, func() (net.Conn, error) { return connect(ctx, manifest.Socket, address) })
	}
}

// connectAlive connects to a host that keeps the lock of its announcement, if it
// has one. It must have it before and after: it listens for as long, so what is
// connected then is the host.
func connectAlive(announcement string, connect func() (net.Conn, error)) (net.Conn, error) {
	alive := func() error {
		if announcement == "" {
			return nil
		}
		return checkAlive(announcement)
	}
	if err := alive(); err != nil {
		return nil, err
	}
	conn, err := connect()
	if err != nil {
		return nil, err
	}
	if err := alive(); err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	return conn, nil
}

func connect(ctx context.Context, socket string, address netip.AddrPort) (net.Conn, error) {
	var d net.Dialer
	if socket != "" {
		if info, err := os.Lstat(socket); err == nil && info.Mode().Type() == fs.ModeSocket {
			return d.DialContext(ctx, "unix", socket)
		}
	}
	return d.DialContext(ctx, "tcp", address.String())
}

// Manifest is what the client was made with.
func (c *Client) Manifest() Manifest { return c.manifest }

func (c *Client) fail(status int, cause error, format string, args ...any) *HostError {
	return &HostError{SourceID: c.manifest.SourceID, Status: status, Message: fmt.Sprintf(format, args...), Cause: cause}
}

// ask sends a request and gives the body of a good answer.
func (c *Client) ask(ctx context.Context, method, path string, limit time.Duration) ([]byte, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, limit, errNoAnswer)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, method, "http://"+c.authority+path, nil)
	if err != nil {
		return nil, c.fail(0, err, "control endpoint cannot be asked: %v", err)
	}
	r.Header.Set("Accept", "application/json")
	response, err := c.http.Do(r)
	if err != nil {
		return nil, c.unavailable(ctx, limit, err)
	}
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(io.LimitReader(response.Body, MaxResponseBytes+1))
	if err != nil {
		return nil, c.unavailable(ctx, limit, err)
	}
	if len(body) > MaxResponseBytes {
		return nil, c.fail(response.StatusCode, nil, "control endpoint answered with more than %d bytes", MaxResponseBytes)
	}
	if response.StatusCode < 200 || response.StatusCode > 299 {
		return nil, c.fail(response.StatusCode, nil, "%s", refusalText(response.StatusCode, body))
	}
	return body, nil
}

// unavailable is the error of a question that got no answer within the limit.
func (c *Client) unavailable(ctx context.Context, limit time.Duration, err error) error {
	cause := context.Cause(ctx)
	switch {
	case errors.Is(cause, errNoAnswer):
		return c.fail(0, context.DeadlineExceeded, "control endpoint is unavailable: no answer in %v", limit)
	case errors.Is(cause, context.DeadlineExceeded): // the caller's own
		return c.fail(0, cause, "control endpoint is unavailable: no answer in time")
	case cause != nil:
		return c.fail(0, cause, "control endpoint is unavailable: %v", cause)
	}
	// The URL around it says nothing new.
	var outer *url.Error
	if errors.As(err, &outer) {
		err = outer.Err
	}
	return c.fail(0, err, "control endpoint is unavailable: %v", err)
}

// errNoAnswer tells the end of a question's own time from that of its caller's.
var errNoAnswer = errors.New("no answer in time")

// refusalText is what a host said with an error status.
func refusalText(status int, body []byte) string {
	if fields, err := wirejson.Parse(body); err == nil {
		for _, name := range []string{"error", "message"} {
			if text, err := fields.String(name); err == nil && text != "" {
				return wirejson.Cut(text, maxMessageBytes)
			}
		}
	}
	return fmt.Sprintf("control endpoint returned HTTP %d", status)
}

// Health asks the host who it is. A host that speaks another version or, when
// it was announced, is another one than announced is refused: another process
// may have its port now.
func (c *Client) Health(ctx context.Context) error {
	body, err := c.ask(ctx, http.MethodGet, pathHealth, c.timeout)
	if err != nil {
		return err
	}
	fields, err := wirejson.Parse(body)
	if err == nil {
		var version int
		if version, err = fields.Int("protocol_version"); err == nil && version != ProtocolVersion {
			err = &wirejson.FieldError{Field: "protocol_version", Want: fmt.Sprint(ProtocolVersion)}
		}
	}
	if err == nil && c.manifest.namesProcess() {
		var source string
		if source, err = fields.String("source_id"); err == nil && source != c.manifest.SourceID {
			err = &wirejson.FieldError{Field: "source_id", Want: "the one that was announced"}
		}
	}
	if err != nil {
		return c.fail(0, err, "control endpoint returned an incompatible health record")
	}
	return nil
}

// List is the host's inventory, in the host's order. One record that is not
// what it must be makes the whole inventory an error.
func (c *Client) List(ctx context.Context) ([]Record, error) {
	body, err := c.ask(ctx, http.MethodGet, pathInventory+"?timeout="+formatTimeout(c.timeout), c.timeout+transportTime)
	if err != nil {
		return nil, err
	}
	invalid := func(err error) error {
		return c.fail(0, err, "control endpoint returned an invalid inventory: %v", err)
	}
	fields, err := wirejson.Parse(body)
	if err != nil {
		return nil, invalid(err)
	}
	items, err := fields.Items("sandboxes", MaxInventory)
	if err != nil {
		return nil, invalid(err)
	}
	records := make([]Record, len(items))
	for i, item := range items {
		if err := records[i].UnmarshalJSON(item); err != nil {
			return nil, invalid(fmt.Errorf("sandbox %d: %w", i, err))
		}
	}
	return records, nil
}

// Get asks the host for one sandbox.
func (c *Client) Get(ctx context.Context, instanceID string) (Record, bool, error) {
	body, err := c.ask(ctx, http.MethodGet, pathInstance+escape(instanceID)+"?timeout="+formatTimeout(c.timeout), c.timeout+transportTime)
	var refused *HostError
	switch {
	case errors.As(err, &refused) && refused.Status == http.StatusNotFound:
		return Record{}, false, nil
	case errors.As(err, &refused) && refused.Status == http.StatusConflict:
		refused.Cause = ErrDuplicate
		return Record{}, false, refused
	case err != nil:
		return Record{}, false, err
	}
	var record Record
	if err := record.UnmarshalJSON(body); err != nil {
		return Record{}, false, c.fail(0, err, "control endpoint returned an invalid record: %v", err)
	}
	if record.InstanceID != instanceID {
		return Record{}, false, c.fail(0, nil, "control endpoint returned a different sandbox instance")
	}
	return record, true, nil
}

// Dispose asks the host to dispose of one sandbox. Whatever goes wrong is a
// result that says so, and never an error: the sandbox may be gone or not. The
// transport waits longer than the timeout, for the host's own verdict.
func (c *Client) Dispose(ctx context.Context, instanceID string, timeout time.Duration) (DisposalResult, error) {
	timeout = bounded(timeout)
	body, err := c.ask(ctx, http.MethodDelete, pathInstance+escape(instanceID)+"?timeout="+formatTimeout(timeout), timeout+transportTime)
	if err != nil {
		return disposalFailed(instanceID, err.Error()), nil
	}
	var result DisposalResult
	if err := result.UnmarshalJSON(body); err != nil {
		return disposalFailed(instanceID, fmt.Sprintf("Control endpoint returned an invalid result: %v", err)), nil
	}
	if result.InstanceID != instanceID {
		return disposalFailed(instanceID, "Control endpoint returned a result for a different sandbox instance."), nil
	}
	result.Message = wirejson.Cut(result.Message, maxMessageBytes)
	return result, nil
}

// Purge asks the host to dispose of a conversation's sandboxes.
func (c *Client) Purge(ctx context.Context, scope, threadID string, timeout time.Duration) (PurgeResult, error) {
	timeout = bounded(timeout)
	path := pathScopes + escape(scope) + "/threads/" + escape(threadID)
	body, err := c.ask(ctx, http.MethodDelete, path+"?timeout="+formatTimeout(timeout), timeout+transportTime)
	if err != nil {
		return PurgeResult{}, err
	}
	var result PurgeResult
	if err := result.UnmarshalJSON(body); err != nil {
		return PurgeResult{}, c.fail(0, err, "control endpoint returned an invalid result: %v", err)
	}
	if result.Scope != scope || result.ThreadID != threadID {
		return PurgeResult{}, c.fail(0, nil, "control endpoint returned a result for another conversation")
	}
	result.Message = wirejson.Cut(result.Message, maxMessageBytes)
	return result, nil
}
