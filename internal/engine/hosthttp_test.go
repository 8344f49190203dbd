//go:build linux && amd64

package engine_test

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"os"
	"strings"
	"testing"

	"github.com/maf-sandbox/maf-sandbox-go/internal/engine"
	"github.com/maf-sandbox/maf-sandbox-go/internal/image"
)

// webRequest is what the guest asks for, webReply what it gets (guest/_maf_http.py).
type webRequest struct {
	Method  string      `json:"method"`
	URL     string      `json:"url"`
	Headers [][2]string `json:"headers"`
	Timeout *float64    `json:"timeout"`
	Connect *float64    `json:"connect_timeout"`
	Answer  *float64    `json:"answer_timeout"`
	Unpack  bool        `json:"unpack"`
	body    []byte
}

type webError struct {
	Kind       string `json:"kind"`
	Message    string `json:"message"`
	Connecting bool   `json:"connecting,omitempty"`
}

type webReply struct {
	Status  int         `json:"status,omitempty"`
	Reason  string      `json:"reason,omitempty"`
	Headers [][2]string `json:"headers,omitzero"`
	URL     string      `json:"url,omitempty"`
	Error   *webError   `json:"error,omitempty"`
	body    []byte
}

// web is a host that answers "http" from a small web of its own.
func web(_ context.Context, name string, request []byte) ([]byte, error) {
	if name != "http" {
		return nil, engine.ErrNotOffered
	}
	if len(request) < 4 || uint64(binary.LittleEndian.Uint32(request)) > uint64(len(request)-4) {
		return nil, errors.New("a malformed message")
	}
	n := binary.LittleEndian.Uint32(request)
	var q webRequest
	if err := json.Unmarshal(request[4:4+n], &q); err != nil {
		return nil, err
	}
	q.body = request[4+n:]
	r, err := q.answer()
	if err != nil {
		return nil, err
	}
	head, err := json.Marshal(r)
	if err != nil {
		return nil, err
	}
	return append(append(binary.LittleEndian.AppendUint32(nil, uint32(len(head))), head...), r.body...), nil
}

// answer serves one page. A host named KIND.error is an error of that kind.
func (q *webRequest) answer() (webReply, error) {
	u, err := url.Parse(q.URL)
	if err != nil {
		return webReply{}, err
	}
	if kind, ok := strings.CutSuffix(u.Hostname(), ".error"); ok {
		if kind == "connecting" {
			return webReply{Error: &webError{"timeout", "no connection", true}}, nil
		}
		return webReply{Error: &webError{kind, "no " + kind, false}}, nil
	}
	text := [2]string{"Content-Type", "text/plain; charset=utf-8"}
	r := webReply{Status: 200, Reason: "OK", Headers: [][2]string{text}, URL: q.URL}
	switch u.Path {
	case "/echo": // what arrived
		r.body = fmt.Appendf(nil, "%s %s %s %s", q.Method, q.URL, seconds(q.Timeout), q.body)
	case "/times":
		r.body = fmt.Appendf(nil, "%s %s %s", seconds(q.Connect), seconds(q.Answer), seconds(q.Timeout))
	case "/cookies":
		r.Headers = append(r.Headers, [2]string{"Set-Cookie", "a=1; Expires=Mon, 21 Oct 2126 07:28:00 GMT"}, [2]string{"Set-Cookie", "b=2"}, [2]string{"Set-Cookie", "c=3"})
	case "/header":
		for _, h := range q.Headers {
			r.body = fmt.Appendf(r.body, "%s=%s;", strings.ToLower(h[0]), h[1])
		}
	case "/unpack":
		r.body = fmt.Append(nil, q.Unpack)
	case "/missing":
		r.Status, r.Reason, r.body = 404, "Not Found", []byte("nothing here")
	case "/moved":
		r.Status, r.Reason, r.Headers = 302, "Found", append(r.Headers, [2]string{"Location", "/echo"})
	case "/large":
		r.body = []byte(strings.Repeat("L", 3<<20))
	case "/twice":
		r.Headers = append(r.Headers, [2]string{"X-Twice", "a"}, [2]string{"X-Twice", "b"}, [2]string{"Transfer-Encoding", "chunked"})
		r.body = []byte("\xff\u00e4")
	case "/refused":
		return webReply{Error: &webError{"policy", "not on the list", false}}, nil
	case "/none":
		r.Status, r.Reason = 204, "No Content"
	case "/head":
		r.Headers = append(r.Headers, [2]string{"Content-Length", "12345"})
	default:
		r.body = []byte("hello from " + u.Host)
	}
	return r, nil
}

func seconds(t *float64) string {
	if t == nil {
		return "none"
	}
	return fmt.Sprint(*t)
}

func TestProgramsFetchThroughTheHost(t *testing.T) {
	vm := machine(t, template(t, nil))
	for name, c := range map[string]struct{ code, want string }{
		"http_get": {"print(http_get('http://a.example/'))",
			"{'status': 200, 'body': 'hello from a.example', 'headers': {'Content-Type': 'text/plain; charset=utf-8'}}\n"},
		"http_get of what is missing or has moved": {"print([http_get('https://a.example' + p)['status'] for p in ('/missing', '/moved', '/none')])", "[404, 302, 204]\n"},
		"http_get of bytes that are no text":       {"r = http_get('http://a.example/twice'); print(ascii(r['body']), r['headers']['X-Twice'])", "'\\ufffd\\xe4' a, b\n"},
		"each cookie that a server sets is told from the others": {`
from urllib.request import urlopen
from http.client import HTTPConnection
url = 'http://a.example/cookies'
want = ['a=1; Expires=Mon, 21 Oct 2126 07:28:00 GMT', 'b=2', 'c=3']
c = HTTPConnection('a.example'); c.request('GET', '/cookies'); r = c.getresponse()
print(http_get(url)['headers']['Set-Cookie'].splitlines() == want, http_post(url)['headers']['Set-Cookie'].split('\n') == want)
print(urlopen(url).headers.get_all('set-cookie') == want, r.msg.get_all('Set-Cookie') == want, r.getheader('set-cookie') == ', '.join(want))`,
			"True True\nTrue True True\n"},
		"http_get of a large page": {"print(len(http_get('http://a.example/large')['body']))", "3145728\n"},
		"http_post": {"print(http_post('http://a.example/echo', '{}')['body'], http_post('http://a.example/header', b'x')['body'], http_post('http://a.example/header', content_type='text/plain')['body'], http_post('http://a.example/echo', body='\u00e4')['body'], sep='\\n')",
			"POST http://a.example/echo none {}\ncontent-type=application/json;\ncontent-type=text/plain;\nPOST http://a.example/echo none \u00e4\n"},
		"http_get of what is no text": {"try: http_get(7)\nexcept TypeError as e: print(e)", "a URL is text, not int\n"},
		"http_post of what is no body": {`
for body in {'a': 1}, None, 7:
    try: http_post('http://a.example/echo', body=body)
    except TypeError as e: print(e)
for content_type in 7, b'text/plain':
    try: http_post('http://a.example/echo', '', content_type)
    except TypeError as e: print(e)`, "body is text or bytes, not dict\nbody is text or bytes, not NoneType\nbody is text or bytes, not int\n" +
			"content_type is text, not int\ncontent_type is text, not bytes\n"},
		"only http_get and http_post have the host unpack": {`
from urllib.request import urlopen
from http.client import HTTPConnection
c = HTTPConnection('a.example')
c.putrequest('GET', '/unpack', skip_accept_encoding=True); c.endheaders()
url = 'http://a.example/unpack'
print(http_get(url)['body'], http_post(url)['body'], urlopen(url).read(), c.getresponse().read())`, "true true b'false' b'false'\n"},
		"urlopen": {`
from urllib.request import urlopen, Request
with urlopen('http://a.example/') as r: print(r.status, r.reason, r.headers['content-type'], r.read())
with urlopen('https://a.example/echo?q=1#f', timeout=2.5) as r: print(r.read())
with urlopen('http://a.example/moved') as r: print(r.url, r.read())
with urlopen(Request('https://a.example/echo', data=b'body', method='PUT')) as r: print(r.read())
with urlopen(Request('http://a.example/header', headers={'X-Own': 'v'})) as r: print(b'x-own=v;' in r.read())
with urlopen('http://a.example/large') as r: print(len(r.read()), r.length)`,
			"200 OK text/plain; charset=utf-8 b'hello from a.example'\nb'GET https://a.example/echo?q=1 2.5 '\n" +
				"http://a.example/echo b'GET http://a.example/echo none '\nb'PUT https://a.example/echo none body'\nTrue\n3145728 0\n"},
		"an error of the server's is HTTPError in urlopen": {`
from urllib.request import urlopen
from urllib.error import HTTPError
try: urlopen('http://a.example/missing')
except HTTPError as e: print(e.code, e.reason, e.read())`, "404 Not Found b'nothing here'\n"},
		"HTTPConnection and HTTPSConnection": {`
from http.client import HTTPConnection, HTTPSConnection
for C, port in (HTTPConnection, None), (HTTPSConnection, None), (HTTPConnection, 8080), (HTTPSConnection, 80):
    c = C('A.example', port, timeout=3)
    for i in range(2):
        c.request('GET', '/echo')
        print(c.getresponse().read().decode())
    c.close()
c = HTTPConnection('::1', 8080); c.request('GET', '/echo'); print(c.getresponse().read().decode())
c = HTTPConnection('a.example')
c.request('POST', '/echo', iter([b'in ', b'pieces']), {'Transfer-Encoding': 'chunked'}, encode_chunked=True); print(c.getresponse().read())
import io
c.request('POST', '/echo', io.BytesIO(b'of a file')); print(c.getresponse().read())
c.putrequest('GET', '/header', skip_accept_encoding=True); c.putheader('X-Own', 'a', 'b: c', 'd'); c.endheaders(); print(c.getresponse().read())
c.request('HEAD', '/head'); r = c.getresponse(); print(r.getheader('content-length'), r.read())
c.request('GET', '/none'); r = c.getresponse(); print(r.status, r.read())
c.putrequest('POST', '/echo'); c.putheader('Content-Length', '6'); c.endheaders(); c.send(b'abc'); c.send(b'def'); print(c.getresponse().read())`,
			strings.Repeat("GET http://a.example/echo 3 \n", 2) + strings.Repeat("GET https://a.example/echo 3 \n", 2) +
				strings.Repeat("GET http://a.example:8080/echo 3 \n", 2) + strings.Repeat("GET https://a.example:80/echo 3 \n", 2) +
				"GET http://[::1]:8080/echo none \n" +
				"b'POST http://a.example/echo none in pieces'\nb'POST http://a.example/echo none of a file'\nb'host=a.example;x-own=a b: c d;'\n12345 b''\n204 b''\n" +
				"b'POST http://a.example/echo none abcdef'\n"},
		"threads fetch at once": {`
from concurrent.futures import ThreadPoolExecutor
from urllib.request import urlopen
with ThreadPoolExecutor(8) as ex:
    print(set(ex.map(lambda i: urlopen('http://a.example/echo?%d' % i).read() == b'GET http://a.example/echo?%d none ' % i, range(50))))`, "{True}\n"},
		"a server inside the sandbox comes first": {`
import http.server, threading
from urllib.request import urlopen
class H(http.server.BaseHTTPRequestHandler):
    def do_GET(self): self.send_response(200); self.end_headers(); self.wfile.write(b'inside')
    def log_message(self, *a): pass
s = http.server.ThreadingHTTPServer(('127.0.0.1', 0), H)
threading.Thread(target=s.serve_forever, daemon=True).start()
print(urlopen('http://localhost:%d/' % s.server_port).read())
print(urlopen('http://127.0.0.1:%d/' % s.server_port).read())
s.shutdown(); s.server_close()
print(urlopen('http://127.0.0.1:%d/' % s.server_port).read() == b'hello from 127.0.0.1:%d' % s.server_port)
print(http_get('http://127.0.0.1/')['body'])`, "b'inside'\nb'inside'\nTrue\nhello from 127.0.0.1\n"},
		"where nobody listens inside, the host's refusal is told too": {`
from urllib.request import urlopen
from urllib.error import URLError
from http.client import HTTPConnection
try: urlopen('http://localhost/refused')
except URLError as e: print(repr(e.reason), isinstance(e.reason, PermissionError), isinstance(e.reason, ConnectionRefusedError))
for kind in PermissionError, ConnectionRefusedError:
    try: HTTPConnection('127.0.0.1').request('GET', '/refused')
    except kind as e: print(e)`, "NobodyListens(13, 'nothing listens there inside the sandbox, and for outside: not on the list') True True\n" +
			strings.Repeat("[Errno 13] nothing listens there inside the sandbox, and for outside: not on the list\n", 2)},
		"a server that is silent is a time-out of reading": {`
from urllib.request import urlopen
from http.client import HTTPSConnection
try: urlopen('https://timeout.error/')
except TimeoutError as e: print(repr(e))
c = HTTPSConnection('timeout.error')
c.request('GET', '/')
for i in range(2):
    try: c.getresponse()
    except TimeoutError as e: print(e.strerror)
    c.close(); c.request('GET', '/')`, "TimeoutError(110, 'no timeout')\nno timeout\nno timeout\n"},
		"a name without an address is told from a lookup that failed": {`
import socket
for kind in 'name', 'lookup':
    try: http_get('http://%s.error/' % kind)
    except socket.gaierror as e: print(e.errno == (socket.EAI_NONAME if kind == 'name' else socket.EAI_AGAIN), e.strerror)`,
			"True no name\nTrue no lookup\n"},
		"there are no sockets all the same": {"import socket\ntry: socket.create_connection(('a.example', 80))\nexcept OSError as e: print(e)", "[Errno 38] this sandbox does not offer name resolution\n"},
	} {
		t.Run(name, func(t *testing.T) {
			outputWith(t, vm, c.code, c.want, web)
		})
	}
	reset(t, vm)
	outputWith(t, vm, "from urllib.request import urlopen\nprint(urlopen('https://a.example/').read())", "b'hello from a.example'\n", web)
}

func TestWhatKeepsAFetchFromAnAnswerIsAnOSError(t *testing.T) {
	vm := machine(t, template(t, nil))
	for kind, class := range map[string]string{
		"policy": "PermissionError", "address": "PermissionError", "name": "gaierror", "lookup": "gaierror", "connect": "ConnectionError",
		"refused": "ConnectionRefusedError", "tls": "SSLError", "too_large": "OSError", "malformed": "OSError", "busy": "OSError", "no_room": "OSError", "new": "OSError",
	} {
		t.Run(kind, func(t *testing.T) {
			outputWith(t, vm, fmt.Sprintf(`
from urllib.request import urlopen
from urllib.error import URLError
from http.client import HTTPSConnection
url = 'https://%s.error/'
try: http_get(url)
except OSError as e: print(type(e).__name__, e.strerror)
try: urlopen(url)
except URLError as e: print(type(e.reason).__name__, e.reason.strerror)
try: HTTPSConnection('%s.error').request('GET', '/')
except OSError as e: print(type(e).__name__, e.strerror)`, kind, kind), strings.Repeat(class+" no "+kind+"\n", 3), web)
		})
	}
}

func TestWithoutNetworkAccessAFetchSaysSo(t *testing.T) {
	vm := machine(t, template(t, nil))
	const code = `
from urllib.request import urlopen, ProxyHandler, build_opener
from urllib.error import URLError
from http.client import HTTPConnection
for f in http_get, http_post:
    try: f('http://a.example/')
    except PermissionError as e: print(e)
try: urlopen('https://a.example/')
except URLError as e: print(e)
try: HTTPConnection('a.example').request('GET', '/')
except PermissionError as e: print(e)
try: urlopen('http://127.0.0.1:1/')
except URLError as e: print(isinstance(e.reason, PermissionError), isinstance(e.reason, ConnectionRefusedError))
try: build_opener(ProxyHandler({'http': 'http://a.example:3128', 'https': 'http://a.example:3128'})).open('http://b.example/')
except URLError as e: print(e.reason.strerror)
try: build_opener(ProxyHandler({'http': 'http://a.example:3128', 'https': 'http://a.example:3128'})).open('https://b.example/')
except URLError as e: print(e.reason.strerror)`
	const no = "network access is not allowed in this sandbox"
	const want = "[Errno 13] " + no + "\n[Errno 13] " + no + "\n<urlopen error [Errno 13] " + no + ">\n[Errno 13] " + no +
		"\nTrue True\nthis sandbox does not offer proxies\nthis sandbox does not offer proxies\n"
	outputWith(t, vm, code, want, nil)
	outputWith(t, vm, code, want, manners) // a host, but without a network
	outputWith(t, vm, "print([n for n in globals() if n[0] != '_' and n in ('http_get', 'http_post')])", "[]\n", nil)
}

// TestRequestsOfAVenvFetchesThroughTheHost needs a venv with requests, which
// MAF_SANDBOX_TEST_REQUESTS names.
func TestRequestsOfAVenvFetchesThroughTheHost(t *testing.T) {
	venv := os.Getenv("MAF_SANDBOX_TEST_REQUESTS")
	if venv == "" {
		t.Skip("needs a venv with requests, named by MAF_SANDBOX_TEST_REQUESTS")
	}
	vm := machine(t, template(t, func(c *engine.Config) { c.Image = imageOf(t, image.Options{Venv: venv}) }))
	outputWith(t, vm, `
import requests
print(requests.get('https://a.example/', timeout=5).text)
for t in 5, (2, 30), (3.5, None), (None, 4), None: print(requests.get('https://a.example/times', timeout=t).text)
print(requests.post('http://a.example/times', data=iter([b'in ', b'pieces']), timeout=(2, 30)).text)
try: requests.get('https://connecting.error/', timeout=(1, 30))
except requests.ConnectTimeout as e: print('no connection' in str(e))
print(dict(requests.get('https://a.example/cookies').cookies))
r = requests.post('http://a.example/echo', json={'a': 1}); print(r.status_code, r.text, r.url)
r = requests.get('https://a.example/moved'); print(r.history, r.text)
print(len(requests.get('https://a.example/large', stream=True).content))
with requests.Session() as s: print([s.get('https://a.example/missing').status_code for _ in range(3)])
for kind in 'policy', 'name', 'tls':
    try: requests.get('https://%s.error/' % kind)
    except requests.ConnectionError as e: print('no ' + kind in str(e))
try: requests.get('https://timeout.error/', timeout=1)
except requests.Timeout as e: print(type(e).__name__)
try: requests.get('https://a.example/', proxies={'https': 'http://b.example:3128'})
except requests.ConnectionError as e: print('does not offer proxies' in str(e))
open('/tmp/own.pem', 'w').close()
try: requests.get('https://a.example/', cert='/tmp/own.pem')
except requests.ConnectionError as e: print('does not offer client certificates' in str(e))
import http.server, threading
s = http.server.ThreadingHTTPServer(('127.0.0.1', 0), http.server.SimpleHTTPRequestHandler)
s.RequestHandlerClass.log_message = lambda *a: None
threading.Thread(target=s.serve_forever, daemon=True).start()
print(requests.get('http://localhost:%d/' % s.server_port).headers['Server'].split('/')[0])
s.shutdown()`, "hello from a.example\n5 5 10\n2 30 32\n3.5 none none\nnone 4 none\nnone none none\n2 30 32\nTrue\n"+
		"{'a': '1', 'b': '2', 'c': '3'}\n200 POST http://a.example/echo none {\"a\": 1} http://a.example/echo\n"+
		"[<Response [302]>] GET https://a.example/echo none \n3145728\n[404, 404, 404]\nTrue\nTrue\nTrue\nReadTimeout\nTrue\nTrue\nSimpleHTTP\n", web)
	outputWith(t, vm, `
try: requests.get('https://a.example/')
except requests.ConnectionError as e: print('network access is not allowed in this sandbox' in str(e))`, "True\n", nil)
}
