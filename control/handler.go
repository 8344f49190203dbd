package control

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/maf-sandbox/maf-sandbox-go/internal/pyjson"
)

// fixedHeaders are in every answer, in this spelling.
var fixedHeaders = [][2]string{
	{"Content-Type", "application/json"},
	{"Cache-Control", "no-store"},
	{"X-Content-Type-Options", "nosniff"},
	{"X-MAF-Sandbox-Control-Version", strconv.Itoa(ProtocolVersion)},
}

// maxBody is the longest body that a request may announce. Bodies mean nothing:
// the answer does not wait for one.
const maxBody = 64 << 10

// writeTime is what a client has to take an answer.
const writeTime = 10 * time.Second

// bodyTime is how long a body is still taken, and thrown away, after the answer.
// One that has been sent already must be: a connection that is closed over it is
// reset, and the answer may be lost.
const bodyTime = settlement

// answer is a status and a JSON body.
type answer struct {
	status int
	body   []byte
	allow  []string
}

func refuse(status int, text string) answer {
	var o pyjson.Object
	o.String("error", text)
	return answer{status: status, body: o.Bytes()}
}

// handler answers the requests of one life of a server.
type handler struct {
	control  Control
	sourceID string
	longest  time.Duration
	// authority is what Host must be on the port.
	authority string
	// writeTime is what a client has to take its answer.
	writeTime  time.Duration
	operations *operations
	log        *slog.Logger
}

// ServeHTTP answers one request.
func (h *handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	conn := connOf(r.Context())
	a := h.work(r, conn)
	header := w.Header()
	for _, fixed := range fixedHeaders {
		header[fixed[0]] = []string{fixed[1]}
	}
	header["Content-Length"] = []string{strconv.Itoa(len(a.body))}
	if a.allow != nil {
		header["Allow"] = []string{strings.Join(a.allow, ", ")}
	}
	if r.ContentLength != 0 {
		header["Connection"] = []string{"close"}
	}
	connection := http.NewResponseController(w)
	if err := connection.SetWriteDeadline(time.Now().Add(h.writeTime)); err != nil {
		h.log.Debug("control: no write deadline", "error", err)
	}
	w.WriteHeader(a.status)
	if r.Method != http.MethodHead {
		_, _ = w.Write(a.body) // a client that went away has no answer
	}
	if r.ContentLength != 0 {
		// net/http would wait for the rest of the body as long as for a head.
		if err := connection.SetReadDeadline(time.Now().Add(bodyTime)); err != nil {
			h.log.Debug("control: no read deadline", "error", err)
		}
	}
}

// work finds the answer, during which the connection is busy.
func (h *handler) work(r *http.Request, conn *gatedConn) answer {
	if conn != nil {
		defer conn.busy()()
	}
	return h.answer(r, isSocket(conn))
}

func isSocket(conn *gatedConn) bool {
	if conn == nil {
		return false
	}
	_, unix := conn.Conn.(*net.UnixConn)
	return unix
}

func (h *handler) answer(r *http.Request, private bool) answer {
	if a, bad := h.foreign(r, private); bad {
		return a
	}
	if r.ContentLength > maxBody {
		return refuse(http.StatusRequestEntityTooLarge, "request is too large")
	}
	path, query := splitTarget(r.RequestURI)
	target := parsePath(path)
	known := r.Method == http.MethodGet || r.Method == http.MethodDelete
	if methods := target.route.methods(); !known && methods != nil {
		a := refuse(http.StatusMethodNotAllowed, "method is not allowed; use "+strings.Join(methods, " or "))
		a.allow = methods
		return a
	}
	timeout, err := parseTimeout(queryTimeouts(query), h.longest)
	if err != nil {
		return refuse(http.StatusBadRequest, err.Error())
	}
	if !slices.Contains(target.route.methods(), r.Method) {
		return refuse(http.StatusNotFound, "route not found")
	}
	switch target.route {
	case routeHealth:
		var o pyjson.Object
		o.Int("protocol_version", ProtocolVersion)
		o.String("source_id", h.sourceID)
		return answer{status: http.StatusOK, body: o.Bytes()}
	case routeInventory:
		return h.inventory(timeout)
	case routeInstance:
		if r.Method == http.MethodDelete {
			return h.dispose(target.instanceID, timeout)
		}
		return h.instance(target.instanceID, timeout)
	default:
		return h.purge(target.scope, target.threadID, timeout)
	}
}

// foreign refuses what a web page can make a browser send: a page that had its
// own name resolve to loopback cannot choose Host, and requests of other pages
// carry their Origin or say where they come from.
func (h *handler) foreign(r *http.Request, private bool) (answer, bool) {
	if !private && r.Host != h.authority {
		return refuse(http.StatusMisdirectedRequest, "host must be "+h.authority), true
	}
	if _, there := r.Header["Origin"]; there {
		return refuse(http.StatusForbidden, "requests of web pages are refused"), true
	}
	// "none" is a person who typed the address.
	if site := r.Header.Values("Sec-Fetch-Site"); len(site) > 0 && !slices.Equal(site, []string{"none"}) {
		return refuse(http.StatusForbidden, "requests of web pages are refused"), true
	}
	if strings.ContainsFunc(r.RequestURI, func(c rune) bool { return c <= ' ' || c > '~' }) {
		return refuse(http.StatusBadRequest, "request target must be printable ASCII"), true
	}
	return answer{}, false
}

// failed is the answer to an operation without a result. What went wrong inside
// of the host is the host's to know.
func (h *handler) failed(what string, err error) answer {
	if errors.Is(err, errTooMany) {
		h.log.Warn("control: " + what + " refused: too many operations do not end")
		return refuse(http.StatusServiceUnavailable, err.Error())
	}
	if errors.Is(err, errLate) {
		h.log.Warn("control: "+what+" timed out", "error", err)
		return refuse(http.StatusGatewayTimeout, what+" timed out")
	}
	h.log.Warn("control: "+what+" failed", "error", err)
	return refuse(http.StatusInternalServerError, what+" failed")
}

func (h *handler) list(timeout time.Duration) ([]Record, error) {
	return run(h.operations, timeout, h.control.List)
}

func (h *handler) inventory(timeout time.Duration) answer {
	records, err := h.list(timeout)
	if err != nil {
		return h.failed("control request", err)
	}
	// An inventory can have thousands of records.
	items := make([]byte, 0, 512*len(records)+2)
	items = append(items, '[')
	for i, record := range records {
		item, err := record.MarshalJSON()
		if err != nil {
			return h.failed("control request", err)
		}
		if i > 0 {
			items = append(items, ',')
		}
		items = append(items, item...)
	}
	var o pyjson.Object
	o.Int("protocol_version", ProtocolVersion)
	o.Raw("sandboxes", append(items, ']'))
	return answer{status: http.StatusOK, body: o.Bytes()}
}

func (h *handler) instance(instanceID string, timeout time.Duration) answer {
	records, err := h.list(timeout)
	if err != nil {
		return h.failed("control request", err)
	}
	record, count := pick(records, instanceID)
	switch {
	case count > 1:
		return refuse(http.StatusConflict, sayDuplicateGet)
	case count == 0 || instanceID == "":
		return refuse(http.StatusNotFound, "sandbox not found")
	}
	body, err := record.MarshalJSON()
	if err != nil {
		return h.failed("control request", err)
	}
	return answer{status: http.StatusOK, body: body}
}

func (h *handler) dispose(instanceID string, timeout time.Duration) answer {
	if instanceID == "" {
		return refuse(http.StatusBadRequest, "instance id is required")
	}
	result, err := run(h.operations, timeout, func(ctx context.Context) (DisposalResult, error) {
		// Whatever the control would make of it, an id that two sandboxes have
		// names neither.
		records, err := h.control.List(ctx)
		if err != nil {
			return DisposalResult{}, err
		}
		if _, count := pick(records, instanceID); count > 1 {
			return disposalFailed(instanceID, sayDuplicate), nil
		}
		return h.control.Dispose(ctx, instanceID, timeout)
	})
	if err != nil {
		return h.failed("disposal", err)
	}
	body, err := result.MarshalJSON()
	if err != nil {
		return h.failed("disposal", err)
	}
	status := http.StatusOK
	if result.Status == DisposalFailed {
		status = http.StatusConflict
	}
	h.log.Info("control: disposal", "instance_id", instanceID, "status", string(result.Status))
	return answer{status: status, body: body}
}

func (h *handler) purge(scope, threadID string, timeout time.Duration) answer {
	if scope == "" || threadID == "" {
		return refuse(http.StatusBadRequest, "scope and thread id are required")
	}
	result, err := run(h.operations, timeout, func(ctx context.Context) (PurgeResult, error) {
		return h.control.Purge(ctx, scope, threadID, timeout)
	})
	if err != nil {
		return h.failed("purge", err)
	}
	body, err := result.MarshalJSON()
	if err != nil {
		return h.failed("purge", err)
	}
	h.log.Info("control: purge", "scope", scope, "thread_id", threadID, "status", string(result.Status), "disposed", result.Disposed)
	return answer{status: http.StatusOK, body: body}
}
