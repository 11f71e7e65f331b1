// SPDX-License-Identifier: Apache-2.0

package tenants_test

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/agentplatform/agentplatform/apiserver"
	"github.com/agentplatform/agentplatform/apiserver/rest"
	"github.com/agentplatform/agentplatform/controllers"
	"github.com/agentplatform/agentplatform/controllers/platformkeys"
	"github.com/agentplatform/agentplatform/internal/plan"
	"github.com/agentplatform/agentplatform/internal/secrets"
	"github.com/agentplatform/agentplatform/internal/testenv/kube"
	"github.com/agentplatform/agentplatform/store/sqlite"
	"github.com/agentplatform/agentplatform/webhookgw"
)

// patience is the timeout of each wait for the controllers.
const patience = 30 * time.Second

// untilStream ends a request once its answer has begun to stream.
type untilStream struct {
	*httptest.ResponseRecorder
	end context.CancelFunc
}

// Flush implements http.Flusher.
func (w untilStream) Flush() {
	w.ResponseRecorder.Flush()
	w.end()
}

// platform is the whole platform in one process. A test can stop it and start it on another store.
type platform struct {
	t      *testing.T
	plane  *kube.ControlPlane
	client client.Client

	platformID uuid.UUID
	store      *sqlite.Store
	facade     *apiserver.Server
	gateway    *webhookgw.Gateway
	path       string
	stop       func()
}

// start starts a platform on a new store.
func start(t *testing.T) *platform {
	t.Helper()
	p := &platform{t: t, plane: kube.Start(t)}
	p.client = p.plane.Client
	p.plane.Grant(t, "manager", "agentplatform-manager")
	p.plane.Grant(t, "facade", "agentplatform-apiserver")
	p.run(filepath.Join(t.TempDir(), "store.db"))
	t.Cleanup(func() { p.stop() })
	return p
}

// run starts all processes on the store of a file.
func (p *platform) run(path string) {
	p.t.Helper()
	ctx, stop := context.WithCancel(context.Background())
	quiet := slog.New(slog.DiscardHandler)
	db, err := sqlite.Open(ctx, sqlite.Options{Path: path, Logger: quiet})
	require.NoError(p.t, err)
	require.NoError(p.t, db.Migrate(ctx))
	p.store, p.path = db, path

	manager, err := client.New(p.plane.User(p.t, "manager"), client.Options{Scheme: p.plane.Scheme})
	require.NoError(p.t, err)
	secret := platformkeys.Secret{Client: manager, Namespace: kube.SystemNamespace}
	p.platformID, err = secret.Ensure(ctx, db, uuid.Nil)
	require.NoError(p.t, err)
	keys := &platformkeys.Keeper{Secret: secret, Store: db, Logger: quiet, Follower: &secrets.Follower{
		Read: secret.Read, Register: db, Process: "all", Keys: &secrets.Keys{}, Logger: quiet,
	}}
	managed := p.manage(ctx, db, keys)
	facade, err := client.NewWithWatch(p.plane.User(p.t, "facade"), client.Options{Scheme: p.plane.Scheme})
	require.NoError(p.t, err)
	index := rest.NewIndex(facade, nil, quiet)
	indexed := make(chan error, 1)
	go func() { indexed <- index.Run(ctx) }()
	p.facade, err = apiserver.New(apiserver.Options{
		Options: rest.Options{Client: facade, Index: index, PlatformID: p.platformID, Logger: quiet, RequestsPerMinute: 1 << 20},
		Store:   db, Claims: db, Keys: keys.Follower.Keys, GatewayURL: "https://hooks.example.com",
	})
	require.NoError(p.t, err)
	p.gateway, err = webhookgw.New(webhookgw.Options{
		Store: db, PublicAddr: "127.0.0.1:0", InternalAddr: "127.0.0.1:0", Grace: time.Second, Logger: quiet,
	})
	require.NoError(p.t, err)
	served := make(chan error, 1)
	go func() { served <- p.gateway.Run(ctx) }()
	p.stop = func() {
		stop()
		require.NoError(p.t, <-managed)
		require.NoError(p.t, <-served)
		require.NoError(p.t, <-indexed)
		require.NoError(p.t, db.Close())
		p.stop = func() {}
	}
}

// gatewayAlone stops the platform and starts the gateway again, on the same store.
func (p *platform) gatewayAlone() {
	p.t.Helper()
	p.stop()
	ctx, stop := context.WithCancel(context.Background())
	quiet := slog.New(slog.DiscardHandler)
	db, err := sqlite.Open(ctx, sqlite.Options{Path: p.path, Logger: quiet})
	require.NoError(p.t, err)
	p.store = db
	p.gateway, err = webhookgw.New(webhookgw.Options{
		Store: db, PublicAddr: "127.0.0.1:0", InternalAddr: "127.0.0.1:0", Grace: time.Second, Logger: quiet,
	})
	require.NoError(p.t, err)
	served := make(chan error, 1)
	go func() { served <- p.gateway.Run(ctx) }()
	p.stop = func() {
		stop()
		require.NoError(p.t, <-served)
		require.NoError(p.t, db.Close())
		p.stop = func() {}
	}
}

// manage runs the controllers with exactly the permissions of their role.
func (p *platform) manage(ctx context.Context, db *sqlite.Store, keys *platformkeys.Keeper) <-chan error {
	p.t.Helper()
	quiet := slog.New(slog.DiscardHandler)
	mgr, err := controllers.NewManager(p.plane.User(p.t, "manager"), controllers.ManagerOptions{
		SystemNamespace: kube.SystemNamespace,
	})
	require.NoError(p.t, err)
	uid, err := controllers.ClusterUID(ctx, mgr.GetAPIReader())
	require.NoError(p.t, err)
	lease := &controllers.Lease{Store: db, ClusterUID: uid, PlatformID: p.platformID, Logger: quiet}
	require.NoError(p.t, lease.Await(ctx))
	require.NoError(p.t, keys.Begin(ctx))
	plenty := plan.Default()
	plenty.RequestsPerMinute = 10_000 // the tests ask as fast as they can
	require.NoError(p.t, controllers.Register(ctx, mgr, controllers.Options{
		Plan:  &plenty,
		Store: db.ForCluster(uid), Hints: db, Lease: lease, PlatformID: p.platformID, Keys: keys.Follower.Keys, KeyKeeper: keys,
		Image: "agentplatform:dev", DispatchURL: "http://dispatch.example.svc:8081", GatewayURL: "https://hooks.example.com",
		SystemNamespace: kube.SystemNamespace,
	}))
	ended := make(chan error, 1)
	go func() { ended <- mgr.Start(ctx) }()
	return ended
}

// answer is the response to a caller.
type answer struct {
	status int
	body   string
}

func (a answer) ok() bool { return a.status < http.StatusMultipleChoices }

// rest calls the facade.
func (p *platform) rest(key, method, path, body string) answer {
	p.t.Helper()
	ctx, cancel := context.WithCancel(p.t.Context())
	defer cancel()
	request := httptest.NewRequestWithContext(ctx, method, path, bytes.NewBufferString(body))
	request.Header.Set("Authorization", "Bearer "+key)
	if body != "" {
		request.Header.Set("Content-Type", "application/json")
	}
	if strings.HasPrefix(body, anUpload[:2]) {
		request.Header.Set("Content-Type", "application/gzip")
	}
	recorder := httptest.NewRecorder()
	p.facade.Handler().ServeHTTP(untilStream{recorder, cancel}, request) // a log streams as long as its deployment is open
	return answer{recorder.Code, recorder.Body.String()}
}

// hook posts to a webhook.
func (p *platform) hook(path, secret, body string) answer {
	p.t.Helper()
	return p.send(http.MethodPost, "http://"+p.gateway.PublicAddr()+path, body, http.Header{"X-Service-Secret": {secret}})
}

// dispatch calls the internal port.
func (p *platform) dispatch(token, method, path, body string) answer {
	p.t.Helper()
	return p.send(method, "http://"+p.gateway.InternalAddr()+path, body, http.Header{"Authorization": {"Bearer " + token}})
}

func (p *platform) send(method, url, body string, header http.Header) answer {
	p.t.Helper()
	request, err := http.NewRequestWithContext(p.t.Context(), method, url, bytes.NewBufferString(body))
	require.NoError(p.t, err)
	request.Header = header
	request.Header.Set("Content-Type", "application/json")
	response, err := (&http.Client{}).Do(request)
	require.NoError(p.t, err)
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	require.NoError(p.t, err)
	return answer{response.StatusCode, string(text)}
}

// eventually waits until something holds.
func (p *platform) eventually(holds func() bool, what string, about ...any) {
	p.t.Helper()
	require.Eventually(p.t, holds, patience, 20*time.Millisecond, append([]any{what}, about...)...)
}
