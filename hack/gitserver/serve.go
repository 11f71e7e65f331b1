// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"sync"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/format/pktline"
	"github.com/go-git/go-git/v5/plumbing/object"
	"github.com/go-git/go-git/v5/plumbing/protocol/packp"
	"github.com/go-git/go-git/v5/plumbing/transport"
	"github.com/go-git/go-git/v5/plumbing/transport/server"
)

const (
	uploadPack  = "git-upload-pack"
	receivePack = "git-receive-pack"
	// maxPushed is the maximum number of pushed repositories. maxPush is the maximum size of a push in bytes.
	maxPushed = 100
	maxPush   = 64 << 20

	firstMessage = "Add the agents"
)

// repositories holds the folder's repository and the repositories that clients have pushed or committed to.
type repositories struct {
	files  map[string]*string // of the folder
	folder *repository
	mutex  sync.Mutex
	pushed map[string]*repository
}

// newRepositories serves the files of a folder.
func newRepositories(files map[string]*string) (*repositories, error) {
	folder, err := newRepository()
	if err != nil {
		return nil, err
	}
	_, err = folder.commitFiles(firstMessage, files)
	return &repositories{files: files, folder: folder, pushed: map[string]*repository{}}, err
}

// ServeHTTP answers the routes of the package's comment.
func (r *repositories) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	var err error
	name, service, _ := strings.Cut(strings.TrimPrefix(req.URL.Path, "/"), ".git/")
	switch {
	case req.Method == http.MethodPost && service == "commit":
		err = r.serveCommit(w, req, name)
	case req.Method == http.MethodGet && service == "info/refs":
		err = r.serveRefs(w, req, name)
	case req.Method == http.MethodPost && service == uploadPack:
		err = r.repositoryToRead(name).serveUploadPack(w, req)
	case req.Method == http.MethodPost && service == receivePack:
		err = r.serveReceivePack(w, req, name)
	default:
		http.NotFound(w, req)
	}
	if err != nil {
		slog.Error("answering", "path", req.URL.Path, "error", err)
		http.Error(w, err.Error(), http.StatusBadRequest)
	}
}

// repositoryToRead is the repository that is read under a name.
func (r *repositories) repositoryToRead(name string) *repository {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	if pushed, ok := r.pushed[name]; ok {
		return pushed
	}
	return r.folder
}

// repositoryToWrite returns the repository to write to under a name. A new repository begins with files. keep stores a new repository.
func (r *repositories) repositoryToWrite(name string, keep bool, files map[string]*string) (*repository, error) {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	if pushed, ok := r.pushed[name]; ok {
		return pushed, nil
	}
	if len(r.pushed) >= maxPushed {
		return nil, fmt.Errorf("there are %d repositories already; push to one of them", maxPushed)
	}
	fresh, err := newRepository()
	if err == nil && files != nil {
		_, err = fresh.commitFiles(firstMessage, files)
	}
	if err == nil && keep {
		r.pushed[name] = fresh
	}
	return fresh, err
}

// serveCommit commits to a repository, which begins with the folder's files.
func (r *repositories) serveCommit(w http.ResponseWriter, req *http.Request, name string) error {
	var body struct {
		Message string             `json:"message"`
		Files   map[string]*string `json:"files"`
	}
	if err := json.NewDecoder(http.MaxBytesReader(w, req.Body, 1<<20)).Decode(&body); err != nil {
		return fmt.Errorf("reading the commit: %w", err)
	}
	repo, err := r.repositoryToWrite(name, true, r.files)
	if err != nil {
		return err
	}
	hash, err := repo.commitFiles(body.Message, body.Files)
	if err == nil {
		_, err = fmt.Fprintln(w, hash)
	}
	return err
}

func (r *repositories) serveRefs(w http.ResponseWriter, req *http.Request, name string) error {
	service := req.URL.Query().Get("service")
	repo := r.repositoryToRead(name)
	if service == receivePack {
		var err error
		if repo, err = r.repositoryToWrite(name, false, nil); err != nil {
			return err
		}
	}
	repo.mutex.Lock()
	defer repo.mutex.Unlock()
	session, err := repo.session(service)
	if err != nil {
		return err
	}
	refs, err := session.AdvertisedReferencesContext(req.Context())
	if err != nil {
		return fmt.Errorf("listing references: %w", err)
	}
	if service == uploadPack {
		if err := repo.addTagTargets(refs); err != nil {
			return err
		}
	}
	refs.Prefix = [][]byte{[]byte("# service=" + service), pktline.Flush}
	answers(w, service, "advertisement")
	return refs.Encode(w)
}

// addTagTargets adds the targets of annotated tags, which the library omits.
func (r *repository) addTagTargets(refs *packp.AdvRefs) error {
	for name, hash := range refs.References {
		for {
			tag, err := object.GetTag(r.store, hash)
			if errors.Is(err, plumbing.ErrObjectNotFound) {
				break
			}
			if err != nil {
				return fmt.Errorf("reading %s: %w", name, err)
			}
			hash = tag.Target
			refs.Peeled[name] = hash
		}
	}
	return nil
}

// session speaks a service of Git with the repository.
func (r *repository) session(service string) (transport.Session, error) {
	transports, endpoint, err := r.transport()
	switch {
	case err != nil:
		return nil, err
	case service == uploadPack:
		return transports.NewUploadPackSession(endpoint, nil)
	case service == receivePack:
		return transports.NewReceivePackSession(endpoint, nil)
	}
	return nil, fmt.Errorf("only %s and %s are served: use a Git that speaks the smart protocol", uploadPack, receivePack)
}

func (r *repository) transport() (transport.Transport, *transport.Endpoint, error) {
	endpoint, err := transport.NewEndpoint("/repository")
	if err != nil {
		return nil, nil, err
	}
	return server.NewServer(server.MapLoader{endpoint.String(): r.store}), endpoint, nil
}

func (r *repository) serveUploadPack(w http.ResponseWriter, req *http.Request) error {
	request := packp.NewUploadPackRequest()
	if err := request.Decode(req.Body); err != nil {
		return fmt.Errorf("reading the request: %w", err)
	}
	r.mutex.Lock()
	defer r.mutex.Unlock()
	transports, endpoint, err := r.transport()
	if err != nil {
		return err
	}
	session, err := transports.NewUploadPackSession(endpoint, nil)
	if err != nil {
		return err
	}
	answer, err := session.UploadPack(req.Context(), request)
	if err != nil {
		return fmt.Errorf("packing: %w", err)
	}
	defer answer.Close()
	answers(w, uploadPack, "result")
	return answer.Encode(w)
}

func (r *repositories) serveReceivePack(w http.ResponseWriter, req *http.Request, name string) error {
	body := bufio.NewReader(http.MaxBytesReader(w, req.Body, maxPush))
	if start, err := body.Peek(len(pktline.FlushPkt) + 1); errors.Is(err, io.EOF) && string(start) == string(pktline.FlushPkt) {
		answers(w, receivePack, "result") // before a large push, Git sends a small request to check its permission
		return nil
	}
	request := packp.NewReferenceUpdateRequest()
	if err := request.Decode(body); err != nil {
		return fmt.Errorf("reading the push: %w", err)
	}
	repo, err := r.repositoryToWrite(name, true, nil)
	if err != nil {
		return err
	}
	repo.mutex.Lock()
	defer repo.mutex.Unlock()
	transports, endpoint, err := repo.transport()
	if err != nil {
		return err
	}
	session, err := transports.NewReceivePackSession(endpoint, nil)
	if err != nil {
		return err
	}
	report, err := session.ReceivePack(req.Context(), request)
	if report == nil {
		return err
	}
	answers(w, receivePack, "result")
	return report.Encode(w)
}

func answers(w http.ResponseWriter, service, what string) {
	w.Header().Set("Content-Type", "application/x-"+service+"-"+what)
	w.Header().Set("Cache-Control", "no-cache")
}

const (
	// maxReceived is the maximum number of stored requests. The destination keeps the newest requests.
	maxReceived = 100
	// maxReceivedBody is the maximum size of a request's body in bytes.
	maxReceivedBody = 1 << 20
)

// request is a request to the destination.
type request struct {
	Path    string            `json:"path"`
	Headers map[string]string `json:"headers"`
	Body    string            `json:"body"`
}

// destination stores the requests that it receives.
type destination struct {
	mutex    sync.Mutex
	received []request
}

// ServeHTTP records posted requests, lists them and deletes them.
func (d *destination) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	body, err := io.ReadAll(http.MaxBytesReader(w, req.Body, maxReceivedBody))
	if err != nil {
		http.Error(w, fmt.Sprintf("reading the request: %v", err), http.StatusBadRequest)
		return
	}
	d.mutex.Lock()
	defer d.mutex.Unlock()
	switch req.Method {
	case http.MethodPost:
		headers := map[string]string{}
		for name := range req.Header {
			headers[name] = req.Header.Get(name)
		}
		d.received = append(d.received, request{Path: req.URL.Path, Headers: headers, Body: string(body)})
		d.received = d.received[max(len(d.received)-maxReceived, 0):]
	case http.MethodDelete:
		d.received = nil
	default:
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(append([]request{}, d.received...)) // the client may have disconnected
	}
}

// order is an order of the shop in docs/first-agent.md and in the examples.
type order struct {
	Order    string   `json:"order"`
	State    string   `json:"state"`
	Carrier  string   `json:"carrier"`
	Shipment shipment `json:"shipment"`

	payments []payment
}

// shipment is the delivery of an order.
type shipment struct {
	Carrier string `json:"carrier"`
	ETA     string `json:"eta"`
}

// payment is a payment of an order.
type payment struct {
	Amount int    `json:"amount"`
	State  string `json:"state"`
}

var orders = map[string]order{
	"4711": {"4711", "shipped", "DHL", shipment{"DHL", "tomorrow"}, []payment{{20, "paid"}, {20, "paid"}}},
	"4712": {"4712", "packed", "UPS", shipment{"UPS", "next week"}, []payment{{35, "paid"}}},
}

// serveOrders adds the routes of orders.
func serveOrders(routes *http.ServeMux) {
	routes.HandleFunc("GET /orders/{order}", func(w http.ResponseWriter, req *http.Request) {
		writeOrder(w, req, func(o order) any { return o })
	})
	routes.HandleFunc("GET /orders/{order}/payments", func(w http.ResponseWriter, req *http.Request) {
		writeOrder(w, req, func(o order) any { return map[string]any{"payments": o.payments} })
	})
}

// writeOrder writes a part of the order that a request names.
func writeOrder(w http.ResponseWriter, req *http.Request, part func(o order) any) {
	found, known := orders[req.PathValue("order")]
	if !known {
		http.Error(w, "there is no such order", http.StatusNotFound)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(part(found)) // the client may have disconnected
}
