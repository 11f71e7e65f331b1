// SPDX-License-Identifier: Apache-2.0

package httpserver

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/agentplatform/agentplatform/internal/pause"
)

// Limits of every listener.
const (
	// HeaderVersion is the header of the REST API's description that has the version of its release.
	HeaderVersion = "X-Agentplatform-Version"
	// readHeaderTimeout ends clients that trickle their headers.
	readHeaderTimeout = 5 * time.Second
	// idleTimeout ends kept-alive connections that ask nothing more.
	idleTimeout = 2 * time.Minute
	// maxHeaderBytes bounds the headers of a request: all connections may hold as
	// much before anything is known of who asks.
	maxHeaderBytes = 16 << 10
	// bodyTimeout ends clients that trickle their body. Handlers that go on for
	// long after reading it lift the deadline.
	bodyTimeout = time.Minute
	// unreadBody is how long a body that the handler did not read may still come
	// in: net/http reads it before it sends the answer.
	unreadBody = 200 * time.Millisecond
	// lastWords is how long a request whose context was ended may take to say so.
	lastWords = time.Second
)

// DefaultConnections is how many connections a listener has open at a time, unless
// it is told otherwise: more than a well-meaning Ingress opens, and less than the
// memory of a process holds.
const DefaultConnections = 8192

// Farewell is that of the servers that strangers ask.
const Farewell = 2 * time.Second

// Options configure a Server.
type Options struct {
	// Name says in logs which server it is.
	Name string
	// Addr is host:port; port 0 takes a free one.
	Addr string
	// TLS names certificate and key; without them the server speaks plain HTTP.
	TLS TLSFiles
	// Handler answers requests. Their contexts end when the grace is over; a
	// handler that returns then without an answer breaks the connection off,
	// where net/http would send an empty 200.
	Handler http.Handler
	// Grace is how long open requests may take once the server stops; 0 means 25 s.
	Grace time.Duration
	// Farewell is how long a server that stops goes on and tells those who ask to
	// come by another connection: a connection that is closed while a request is on
	// its way breaks it off. 0: it stops at once.
	Farewell time.Duration
	// MaxConnections is how many connections are open at a time; 0 means
	// DefaultConnections. For those beyond, others are closed that ask nothing, first
	// of the addresses with most; where none is, they wait.
	MaxConnections int
	// TrustedProxies are addresses with many clients, so that theirs are closed last.
	TrustedProxies Proxies
	// WriteTimeout is how long a client may take to read a piece of an answer; 0
	// means 30 s.
	WriteTimeout time.Duration
	// Logger is where the server logs; nil means slog.Default.
	Logger *slog.Logger
}

// Server is an HTTP server that is bound before it runs, so that an address in
// use is an error of New and callers know the port.
type Server struct {
	opts     Options
	listener net.Listener
	http     *http.Server
	abort    context.CancelFunc
	leaving  *atomic.Bool
}

// New binds the address.
func New(opts Options) (*Server, error) {
	if opts.Grace == 0 {
		opts.Grace = 25 * time.Second
	}
	if opts.WriteTimeout == 0 {
		opts.WriteTimeout = writeTimeout
	}
	if opts.MaxConnections == 0 {
		opts.MaxConnections = DefaultConnections
	}
	if opts.Logger == nil {
		opts.Logger = slog.Default()
	}
	if opts.MaxConnections < 1 {
		return nil, fmt.Errorf("preparing %s: it cannot have %d connections: name a number of at least 1", opts.Name, opts.MaxConnections)
	}
	secure, err := opts.TLS.config(opts.Logger)
	if err != nil {
		return nil, fmt.Errorf("preparing %s: %w", opts.Name, err)
	}
	listener, err := (&net.ListenConfig{}).Listen(context.Background(), "tcp", opts.Addr)
	if err != nil {
		return nil, fmt.Errorf("listening for %s: %w", opts.Name, err)
	}
	open := newConnections(opts.TrustedProxies, time.Now)
	listener = newBoundedListener(listener, opts.WriteTimeout, opts.MaxConnections, open)
	requests, abort := context.WithCancel(context.Background())
	leaving := &atomic.Bool{}
	return &Server{opts: opts, listener: listener, abort: abort, leaving: leaving, http: &http.Server{
		Handler:           farewell(answered(opts.Handler, opts.WriteTimeout), leaving),
		ReadHeaderTimeout: readHeaderTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    maxHeaderBytes,
		TLSConfig:         secure,
		HTTP2:             &http.HTTP2Config{MaxConcurrentStreams: maxStreams},
		BaseContext:       func(net.Listener) context.Context { return requests },
		ConnState:         open.moved,
		ErrorLog:          slog.NewLogLogger(opts.Logger.Handler(), slog.LevelDebug),
	}}, nil
}

// Addr is the address that the server is bound to.
func (s *Server) Addr() string { return s.listener.Addr().String() }

// Run serves until ctx ends, then lets open requests end within the grace. It
// returns nil after a stop in order.
func (s *Server) Run(ctx context.Context) error {
	defer s.abort()
	failed := make(chan error, 1)
	// Said before it serves: from then on net/http gives a server without TLS a
	// TLSConfig of its own, for HTTP/2.
	s.opts.Logger.Info("serving", "server", s.opts.Name, "addr", s.Addr(), "tls", s.http.TLSConfig != nil)
	go func() { failed <- s.serve() }()
	select {
	case err := <-failed:
		return fmt.Errorf("serving %s: %w", s.opts.Name, err)
	case <-ctx.Done():
	}
	s.leaving.Store(true)
	_ = pause.For(context.WithoutCancel(ctx), min(s.opts.Farewell, s.opts.Grace))
	s.http.SetKeepAlivesEnabled(false)
	grace, cancel := context.WithTimeout(context.Background(), s.opts.Grace)
	defer cancel()
	if err := s.http.Shutdown(grace); err != nil {
		s.opts.Logger.Warn("open requests were cut off", "server", s.opts.Name, "grace", s.opts.Grace.String())
		s.abort()
		last, cancel := context.WithTimeout(context.Background(), lastWords)
		defer cancel()
		if s.http.Shutdown(last) != nil {
			err = errors.Join(err, s.http.Close())
		}
		return err
	}
	return nil
}

func (s *Server) serve() error {
	if s.http.TLSConfig != nil {
		return s.http.ServeTLS(s.listener, "", "")
	}
	return s.http.Serve(s.listener)
}

// farewell ends connections with their answers once the server is leaving.
func farewell(next http.Handler, leaving *atomic.Bool) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if leaving.Load() {
			w.Header().Set("Connection", "close")
		}
		next.ServeHTTP(w, r)
	})
}

// BodyRead lifts the deadline of a request's body, once it was read whole: the
// deadline would end a handler that takes longer.
func BodyRead(w http.ResponseWriter) {
	readUntil(w, time.Time{})
}

func readUntil(w http.ResponseWriter, deadline time.Time) {
	if err := http.NewResponseController(w).SetReadDeadline(deadline); err != nil {
		slog.Debug("bounding a body", "error", err) // a recorder of a test has no connection
	}
}

// answered bounds how long a request's body and the reading of its answer may
// take, and breaks off a request whose context ended and whose handler wrote
// nothing: success must be said, not left out.
func answered(next http.Handler, timeout time.Duration) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		answer := &response{ResponseWriter: w}
		if r.ProtoMajor == 2 {
			answer.stream = &stream{w: w, timeout: timeout}
		}
		if r.ContentLength != 0 {
			answer.body = &body{ReadCloser: r.Body}
			bounded := *r
			bounded.Body, r = answer.body, &bounded
			readUntil(w, time.Now().Add(bodyTimeout))
		}
		next.ServeHTTP(answer, r)
		if !answer.begun && r.Context().Err() != nil {
			panic(http.ErrAbortHandler)
		}
		answer.begin()
		if answer.stream != nil {
			answer.stream.end()
		}
	})
}

// body notes whether it was read to its end.
type body struct {
	io.ReadCloser
	ended bool
}

// Read implements io.Reader.
func (b *body) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	b.ended = b.ended || err != nil
	return n, err
}

// response notes that it was begun. From then on a body that was not read to its
// end has little time: net/http reads it before it sends the answer. One that was
// must have no deadline: net/http reads on for the end of the connection.
type response struct {
	http.ResponseWriter
	body   *body   // nil without one
	stream *stream // nil unless it is HTTP/2
	begun  bool
}

func (r *response) begin() {
	if !r.begun && r.body != nil && !r.body.ended {
		readUntil(r.ResponseWriter, time.Now().Add(unreadBody))
	}
	r.begun = true
}

// WriteHeader implements http.ResponseWriter.
func (r *response) WriteHeader(status int) {
	r.begin()
	r.ResponseWriter.WriteHeader(status)
}

// Write implements http.ResponseWriter.
func (r *response) Write(p []byte) (int, error) {
	r.begin()
	if r.stream != nil {
		return r.stream.write(p)
	}
	return r.ResponseWriter.Write(p)
}

// FlushError is for http.ResponseController: what is flushed of a stream has the time of a piece,
// for its client may take nothing of it.
func (r *response) FlushError() error {
	r.begin()
	if r.stream != nil {
		r.stream.written = true
		r.stream.bound()
		defer r.stream.within(noDeadline)
	}
	return http.NewResponseController(r.ResponseWriter).Flush()
}

// SetWriteDeadline is for http.ResponseController. One of a stream is kept to beside
// that of each piece, as boundedConn does.
func (r *response) SetWriteDeadline(deadline time.Time) error {
	if r.stream != nil {
		r.stream.until = deadline
		return nil
	}
	return http.NewResponseController(r.ResponseWriter).SetWriteDeadline(deadline)
}

// Unwrap is for http.ResponseController.
func (r *response) Unwrap() http.ResponseWriter { return r.ResponseWriter }
