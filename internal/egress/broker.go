package egress

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"runtime/debug"
	"sync"
	"time"
)

// Limits bound what one sandbox's requests may take. Zero fields are the
// defaults.
type Limits struct {
	// RequestBody and ResponseBody bound the bodies, in bytes; 8 MiB, and 1 GiB
	// at most.
	RequestBody, ResponseBody int64
	// Time bounds a request from its arrival to its reply; 60 s. The context
	// and the guest can only shorten it.
	Time time.Duration
	// Concurrent is how many requests are on their way at once; 8.
	Concurrent int
	// Waiting is how many more wait for their turn; 32. One more is refused.
	Waiting int
}

const maxBodyBytes = 1 << 30

// The defaults of Limits.
const (
	DefaultBodyBytes  = 8 << 20
	DefaultTime       = 60 * time.Second
	DefaultConcurrent = 8
	DefaultWaiting    = 32
)

func (l Limits) withDefaults() (Limits, error) {
	if l.RequestBody > maxBodyBytes || l.ResponseBody > maxBodyBytes {
		return l, fmt.Errorf("limits of egress: %+v: a body is at most %d bytes, since it is kept in memory whole", l, int64(maxBodyBytes))
	}
	if l.RequestBody < 0 || l.ResponseBody < 0 || l.Time < 0 || l.Concurrent < 0 || l.Waiting < 0 {
		return l, fmt.Errorf("limits of egress: %+v: a limit is not below 0; leave it 0 for the default", l)
	}
	set(&l.RequestBody, DefaultBodyBytes)
	set(&l.ResponseBody, DefaultBodyBytes)
	set(&l.Time, DefaultTime)
	set(&l.Concurrent, DefaultConcurrent)
	set(&l.Waiting, DefaultWaiting)
	return l, nil
}

func set[T int | int64 | time.Duration](limit *T, normal T) {
	if *limit == 0 {
		*limit = normal
	}
}

// Config makes a broker.
type Config struct {
	// Policy judges; nil allows nothing.
	Policy *Policy
	// Resolver finds addresses; nil for NetResolver(nil).
	Resolver Resolver
	// Dial connects; nil for TCP.
	Dial Dial
	// Roots verify servers; nil for the host's own.
	Roots *x509.CertPool
	// Limits bound the sandbox's requests.
	Limits Limits
	// OwnAddrs gives the addresses of this host, to which no name may lead without
	// a permission; nil for those of its network interfaces.
	OwnAddrs func() ([]netip.Addr, error)
	// Observe, if set, is told of every request when it ends, before the guest
	// is. It may be called from several goroutines at once, and the request
	// waits for it.
	Observe func(Observation)
}

// Observation is what became of a request. It holds nothing of the guest's
// bodies and headers.
type Observation struct {
	// Method is what was asked for; empty unless it is a method.
	Method string
	// Decision is the policy's; undecided when the request could not be read.
	Decision Decision
	// Answers are the addresses of the host's name, each judged.
	Answers []Answer
	// Dialed is the one that was connected to; invalid for none.
	Dialed netip.AddrPort
	// Status is the answer's; 0 for none.
	Status int
	// Failure is why there was none.
	Failure Kind
	// Sent and Received count the bytes of the bodies.
	Sent, Received int64
	// Duration is the time from the arrival to the end.
	Duration time.Duration
}

// Broker makes one sandbox's requests. It is safe for concurrent use.
type Broker struct {
	policy   *Policy
	resolver Resolver
	dial     Dial
	roots    *x509.CertPool
	limits   Limits
	own      func() ([]netip.Addr, error)
	observe  func(Observation)

	// places has one token for each request that is on its way, waiting one for
	// each that waits.
	places, waiting chan struct{}

	life context.Context
	end  context.CancelFunc

	mu     sync.Mutex
	closed bool           // guarded by mu
	active sync.WaitGroup // Add only under mu while not closed
}

// NewBroker makes a broker. Close it with its sandbox. It refuses limits below
// zero.
func NewBroker(config Config) (*Broker, error) {
	limits, err := config.Limits.withDefaults()
	if err != nil {
		return nil, err
	}
	b := &Broker{
		policy: config.Policy, resolver: config.Resolver, dial: config.Dial, roots: config.Roots,
		limits: limits, own: config.OwnAddrs, observe: config.Observe,
		places: make(chan struct{}, limits.Concurrent), waiting: make(chan struct{}, limits.Waiting),
	}
	if b.resolver == nil {
		b.resolver = NetResolver(nil)
	}
	if b.dial == nil {
		b.dial = dialTCP
	}
	if b.own == nil {
		b.own = interfaceAddrs
	}
	b.life, b.end = context.WithCancel(context.Background())
	return b, nil
}

// Close ends every request and waits for them. Requests that come later are
// answered with an error. No connection is left.
func (b *Broker) Close() {
	b.mu.Lock()
	b.closed = true
	b.mu.Unlock()
	b.end()
	b.active.Wait()
}

// Serve answers a guest's message with a reply, whatever the message is. The
// message must not change until then. The reply to a request that was answered
// takes the memory that room, unless it is nil, granted last; any other is small.
func (b *Broker) Serve(ctx context.Context, message []byte, room Room) []byte {
	into := &collector{room: room, whole: true}
	_, failure := b.observed(func(seen *Observation) (*Response, *Error) {
		request, failure := decodeRequest(message)
		if failure != nil {
			return nil, failure
		}
		return b.do(ctx, &request, seen, into)
	})
	if failure != nil {
		return encodeError(failure)
	}
	return into.bytes
}

// Do makes a request that is allowed and gives the answer, whatever its status.
// An error is an [*Error].
func (b *Broker) Do(ctx context.Context, request *Request) (*Response, error) {
	response, failure := b.observed(func(seen *Observation) (*Response, *Error) {
		return b.do(ctx, request, seen, &collector{})
	})
	if failure != nil {
		return nil, failure
	}
	return response, nil
}

// observed does one request and tells of it.
func (b *Broker) observed(do func(*Observation) (*Response, *Error)) (*Response, *Error) {
	start := time.Now()
	var seen Observation
	response, failure := contained(func() (*Response, *Error) { return do(&seen) })
	if b.observe == nil {
		return response, failure
	}
	if response != nil {
		seen.Status, seen.Received = response.Status, int64(len(response.Body))
	}
	if failure != nil {
		seen.Failure = failure.Kind
	}
	seen.Duration = time.Since(start)
	// What cannot be observed is not answered.
	return contained(func() (*Response, *Error) {
		b.observe(seen)
		return response, failure
	})
}

// contained turns a panic into an error: a fault here, or in what the host
// program gave, is one request's.
func contained(do func() (*Response, *Error)) (response *Response, failure *Error) {
	defer func() {
		if fault := recover(); fault != nil {
			response, failure = nil, faulty(fault)
		}
	}()
	return do()
}

// faulty makes the error of a panic, in the function that recovered it.
func faulty(fault any) *Error {
	return fail(KindConnect, fmt.Errorf("panic: %v\n%s", fault, debug.Stack()), "the request met a fault of the broker")
}

func (b *Broker) do(ctx context.Context, request *Request, seen *Observation, into *collector) (*Response, *Error) {
	decision := b.policy.Decide(request.Method, request.URL)
	seen.Decision = decision
	if isMethod(request.Method) {
		seen.Method = request.Method
	}
	if !decision.Allowed() {
		return nil, b.policy.refusal(decision, request.Method, request.URL)
	}
	target := decision.Target
	if n := int64(len(request.Body)); n > b.limits.RequestBody {
		return nil, fail(KindTooLarge, nil, "the body has %d bytes; at most %d can be sent", n, b.limits.RequestBody)
	}
	header, failure := requestHeader(request.Header, target, len(request.Body))
	if failure != nil {
		return nil, failure
	}
	ctx, leave, failure := b.enter(ctx, request.Timeout)
	if failure != nil {
		return nil, failure
	}
	defer leave()

	connecting, connected := within(ctx, request.ConnectTimeout)
	defer connected()
	plainConn, failure := b.reach(connecting, target, seen)
	if failure != nil {
		return nil, failure.duringConnect(ctx, connecting, request, target)
	}
	// Whatever becomes of it, no connection outlives its request.
	defer func() { _ = plainConn.Close() }()
	conn := plainConn
	if target.secure {
		if conn, failure = b.secure(connecting, target, plainConn); failure != nil {
			return nil, failure.duringConnect(ctx, connecting, request, target)
		}
	}
	seen.Sent = int64(len(request.Body))
	answering, answered := within(ctx, request.AnswerTimeout)
	defer answered()
	return b.exchange(answering, conn, target, request, header, into)
}

// within bounds a part of a request; zero bounds nothing.
func within(ctx context.Context, limit time.Duration) (context.Context, context.CancelFunc) {
	if limit == 0 {
		return context.WithCancel(ctx)
	}
	return context.WithTimeout(ctx, limit)
}

// duringConnect is the failure of what comes before a request is sent, which is
// the program's own doing when its time for that is over and the request's is not.
func (e *Error) duringConnect(whole, connecting context.Context, request *Request, target Target) *Error {
	if e.Kind != KindTimeout || whole.Err() != nil || connecting.Err() == nil {
		return e
	}
	late := fail(KindTimeout, e.Cause, "no connection to %s within %v, the program's own limit for that", target.Name(), request.ConnectTimeout)
	late.Connecting = true
	return late
}

// reach connects to a target that is allowed. Nothing that was begun is left after an
// error.
func (b *Broker) reach(ctx context.Context, target Target, seen *Observation) (net.Conn, *Error) {
	answers, failure := b.resolve(ctx, target)
	seen.Answers = answers
	if failure != nil {
		return nil, failure
	}
	addrs, failure := reachable(target, answers)
	if failure != nil {
		return nil, failure
	}
	conn, dialed, failure := b.connect(ctx, target, addrs)
	if failure != nil {
		return nil, failure
	}
	seen.Dialed = dialed
	return conn, nil
}

// enter waits for the request's turn. The context that it returns has the
// request's time and ends with the broker; leave must be called.
func (b *Broker) enter(ctx context.Context, timeout time.Duration) (_ context.Context, leave func(), _ *Error) {
	b.mu.Lock()
	if b.closed {
		b.mu.Unlock()
		return nil, nil, fail(KindConnect, net.ErrClosed, "the network of this sandbox has ended")
	}
	b.active.Add(1)
	b.mu.Unlock()

	if timeout == 0 || timeout > b.limits.Time {
		timeout = b.limits.Time
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	stop := context.AfterFunc(b.life, cancel)
	end := func() {
		stop()
		cancel()
		b.active.Done()
	}
	if failure := b.takePlace(ctx); failure != nil {
		end()
		return nil, nil, failure
	}
	return ctx, func() { <-b.places; end() }, nil
}

func (b *Broker) takePlace(ctx context.Context) *Error {
	select {
	case b.places <- struct{}{}:
		return nil
	default:
	}
	select {
	case b.waiting <- struct{}{}:
		defer func() { <-b.waiting }()
	default:
		return fail(KindBusy, nil, "%d requests are on their way and %d wait, which is the limit; wait for some to end",
			b.limits.Concurrent, b.limits.Waiting)
	}
	select {
	case b.places <- struct{}{}:
		return nil
	case <-ctx.Done():
		if !errors.Is(ctx.Err(), context.DeadlineExceeded) {
			return ended(ctx, KindConnect, nil, "the request was given up")
		}
		return fail(KindBusy, ctx.Err(), "the request's time ran out while it waited for %d others; nothing was sent", b.limits.Concurrent)
	}
}
