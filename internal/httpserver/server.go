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
	// HeaderVersion is the header with the release of the REST API's description.
	HeaderVersion = "X-Agentplatform-Version"
	// readHeaderTimeout limits the time of a request's headers.
	readHeaderTimeout = 5 * time.Second
	// idleTimeout limits the time of idle connections.
	idleTimeout = 2 * time.Minute
	// maxHeaderBytes limits the headers of a request, because each connection can hold them before
	// authentication.
	maxHeaderBytes = 16 << 10
	// bodyTimeout limits the time of a body. Handlers that take long after reading it remove the
	// deadline.
	bodyTimeout = time.Minute
	// unreadBody is the time for a body that the handler did not read. net/http reads it before it
	// sends the response.
	unreadBody = 200 * time.Millisecond
	// lastWords is the time for a handler to respond after its context has ended.
	lastWords = time.Second
)

// DefaultConnections is the default limit of a listener's open connections. It is more than an
// Ingress usually opens, and fits into the memory of a process.
const DefaultConnections = 8192

// Farewell is the farewell time of public servers.
const Farewell = 2 * time.Second

// Options configure a Server.
type Options struct {
	// Name identifies the server in logs.
	Name string
	// Addr is host:port. Port 0 selects a free port.
	Addr string
	// TLS names certificate and key. Without them the server uses plain HTTP.
	TLS TLSFiles
	// Handler handles requests. Their contexts end after the grace period. If a handler then
	// returns without a response, the connection is closed, because net/http would send an empty
	// 200.
	Handler http.Handler
	// Grace is the time for open requests after the server stops; 0 means 25 s.
	Grace time.Duration
	// Farewell is how long a stopping server still serves requests and closes their connections.
	// Closing a connection immediately would lose a request that is in transit. 0 stops
	// immediately.
	Farewell time.Duration
	// MaxConnections limits open connections; 0 means DefaultConnections. For a further connection,
	// idle ones are closed, first of the addresses with most connections. Without idle ones it
	// waits.
	MaxConnections int
	// TrustedProxies are addresses with many clients. Their connections are closed last.
	TrustedProxies Proxies
	// WriteTimeout limits the time until a client reads a piece of a response; 0 means 30 s.
	WriteTimeout time.Duration
	// Logger is the log; nil means slog.Default.
	Logger *slog.Logger
}

// Server is an HTTP server that binds its address before it runs. So New returns the error of a
// used address, and callers know the port.
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
		return nil, fmt.Errorf("preparing %s: the limit of connections is %d; set at least 1", opts.Name, opts.MaxConnections)
	}
	secure, err := opts.TLS.serverConfig(opts.Logger)
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
		ConnState:         open.recordState,
		ErrorLog:          slog.NewLogLogger(opts.Logger.Handler(), slog.LevelDebug),
	}}, nil
}

// Addr returns the bound address.
func (s *Server) Addr() string { return s.listener.Addr().String() }

// Run serves until ctx ends and then waits for open requests up to the grace period. It returns nil
// after an orderly stop.
func (s *Server) Run(ctx context.Context) error {
	defer s.abort()
	failed := make(chan error, 1)
	// This is logged before serving, because net/http then sets a TLSConfig for HTTP/2 on a server
	// without TLS.
	s.opts.Logger.Info("serving", "server", s.opts.Name, "addr", s.Addr(), "tls", s.http.TLSConfig != nil)
	go func() { failed <- s.serveListener() }()
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
		s.opts.Logger.Warn("open requests were cancelled", "server", s.opts.Name, "grace", s.opts.Grace.String())
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

func (s *Server) serveListener() error {
	if s.http.TLSConfig != nil {
		return s.http.ServeTLS(s.listener, "", "")
	}
	return s.http.Serve(s.listener)
}

// farewell closes connections after their responses while the server stops.
func farewell(next http.Handler, leaving *atomic.Bool) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if leaving.Load() {
			w.Header().Set("Connection", "close")
		}
		next.ServeHTTP(w, r)
	})
}

// BodyRead removes the deadline of a request's body that was read completely, because it would end
// a handler that takes longer.
func BodyRead(w http.ResponseWriter) {
	readUntil(w, time.Time{})
}

func readUntil(w http.ResponseWriter, deadline time.Time) {
	if err := http.NewResponseController(w).SetReadDeadline(deadline); err != nil {
		slog.Debug("bounding a body", "error", err) // the recorder of a test has no connection
	}
}

// answered limits the time of a request's body and of reading the response. It closes the
// connection of a request whose context ended without a response, so that the client does not see a
// success.
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
		answer.beginResponse()
		if answer.stream != nil {
			answer.stream.limitFinalWrites()
		}
	})
}

// body records whether it was read completely.
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

// response records whether the response has begun. Then an incomplete body gets little time,
// because net/http reads it before it sends the response. A complete body must have no deadline,
// because net/http reads on to detect the end of the connection.
type response struct {
	http.ResponseWriter
	body   *body   // nil without a body
	stream *stream // nil unless HTTP/2
	begun  bool
}

func (r *response) beginResponse() {
	if !r.begun && r.body != nil && !r.body.ended {
		readUntil(r.ResponseWriter, time.Now().Add(unreadBody))
	}
	r.begun = true
}

// WriteHeader implements http.ResponseWriter.
func (r *response) WriteHeader(status int) {
	r.beginResponse()
	r.ResponseWriter.WriteHeader(status)
}

// Write implements http.ResponseWriter.
func (r *response) Write(p []byte) (int, error) {
	r.beginResponse()
	if r.stream != nil {
		return r.stream.writeChunk(p)
	}
	return r.ResponseWriter.Write(p)
}

// FlushError implements the method of http.ResponseController. Flushed data of a stream has the
// time of a piece, because the client may not read it.
func (r *response) FlushError() error {
	r.beginResponse()
	if r.stream != nil {
		r.stream.written = true
		r.stream.setWriteDeadline()
		defer r.stream.extendDeadline(noDeadline)
	}
	return http.NewResponseController(r.ResponseWriter).Flush()
}

// SetWriteDeadline implements the method of http.ResponseController. A stream applies it in
// addition to the deadline of each piece, like boundedConn.
func (r *response) SetWriteDeadline(deadline time.Time) error {
	if r.stream != nil {
		r.stream.until = deadline
		return nil
	}
	return http.NewResponseController(r.ResponseWriter).SetWriteDeadline(deadline)
}

// Unwrap implements the method of http.ResponseController.
func (r *response) Unwrap() http.ResponseWriter { return r.ResponseWriter }
