//go:build linux && amd64

package live

import (
	"compress/gzip"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"io"
	"log"
	"math/big"
	"net"
	"net/http"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/maf-sandbox/maf-sandbox-go/internal/egress/egresstest"
	"github.com/maf-sandbox/maf-sandbox-go/internal/tools/testvm/expect"
)

// Addresses of loopback that nothing else uses, and names of the site's server.
const (
	here = "127.83.12.9"
	// elsewhere has servers that nobody may reach.
	elsewhere = "127.83.12.10"
	// nobody has none.
	nobody = "127.83.12.11"
	// insideName and apiName may be on loopback, outsideName may not.
	insideName, outsideName = "inside.example", "outside.example"
	apiName                 = egresstest.Listed
)

// site is a web site on ports 80 and 443, and the name server that knows it.
type site struct {
	names     *egresstest.NameServer
	authority *x509.Certificate

	mu   sync.Mutex
	hits []string // guarded by mu
}

// newSite serves until the test ends.
func newSite(t *testing.T) *site {
	t.Helper()
	s := &site{names: egresstest.NewNameServer(t, here)}
	certificate := s.certify(t, []string{insideName, apiName}, net.ParseIP(here))
	serve(t, here+":80", s, nil)
	serve(t, here+":443", s, &certificate)
	stranger := http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { t.Errorf("%s was reached for %s", r.Host, r.URL) })
	serve(t, elsewhere+":80", stranger, nil)
	serve(t, here+":8080", stranger, nil)
	return s
}

// serve serves at an address, over TLS with a certificate.
func serve(t *testing.T, address string, handler http.Handler, certificate *tls.Certificate) {
	t.Helper()
	l, err := net.Listen("tcp", address)
	if err != nil {
		expect.WebPorts.Skip(t, "needs to listen at %s: %v", address, err)
	}
	if certificate != nil {
		l = tls.NewListener(l, &tls.Config{Certificates: []tls.Certificate{*certificate}, MinVersion: tls.VersionTLS12})
	}
	// Handshakes that are meant to fail are no news.
	server := &http.Server{Handler: handler, ReadHeaderTimeout: patience(10 * time.Second), ErrorLog: log.New(io.Discard, "", 0)}
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(l) }()
	t.Cleanup(func() {
		_ = server.Close()
		if err := <-ended; !errors.Is(err, http.ErrServerClosed) {
			t.Error(err)
		}
	})
}

// certify makes an authority and a certificate of its for names and an address.
func (s *site) certify(t *testing.T, names []string, address net.IP) tls.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "the test's authority"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
		DNSNames: names, IPAddresses: []net.IP{address},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	if s.authority, err = x509.ParseCertificate(der); err != nil {
		t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

// ServeHTTP answers as the path says.
func (s *site) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(io.LimitReader(r.Body, 1<<20))
	scheme := "http"
	if r.TLS != nil {
		scheme = "https"
	}
	s.mu.Lock()
	s.hits = append(s.hits, fmt.Sprintf("%s %s://%s%s", r.Method, scheme, r.Host, r.URL.Path))
	s.mu.Unlock()
	w.Header().Set("X-Site", "here")
	switch r.URL.Path {
	case "/wait":
		<-r.Context().Done()
	case "/forbidden":
		http.Error(w, "no", http.StatusForbidden)
	case "/packed": // whether it was asked for or not
		w.Header().Set("Content-Encoding", "gzip")
		packed := gzip.NewWriter(w)
		_, _ = packed.Write([]byte("what was packed"))
		_ = packed.Close()
	case "/moved":
		w.Header().Set("Location", "http://"+elsewhere+"/")
		w.WriteHeader(http.StatusFound)
	case "/headers":
		for _, name := range []string{"Authorization", "Cookie", "Proxy-Authorization", "User-Agent"} {
			_, _ = fmt.Fprintf(w, "%s=%s;", name, r.Header.Get(name))
		}
	default:
		_, _ = fmt.Fprintf(w, "%s|%s|%s", r.Method, r.Header.Get("Content-Type"), body)
	}
}

// took gives what was requested since the last call, sorted.
func (s *site) took() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	hits := slices.Sorted(slices.Values(s.hits))
	s.hits = nil
	return hits
}

// waits waits until something was requested.
func (s *site) waits(t *testing.T, hit string) {
	t.Helper()
	for deadline := time.Now().Add(patience(30 * time.Second)); ; time.Sleep(time.Millisecond) {
		s.mu.Lock()
		seen := slices.Contains(s.hits, hit)
		s.mu.Unlock()
		if seen {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s was not requested", hit)
		}
	}
}
