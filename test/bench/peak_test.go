// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"bufio"
	"context"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/agentplatform/agentplatform/internal/dispatchapi"
	"github.com/agentplatform/agentplatform/store"
	"github.com/agentplatform/agentplatform/store/storetest/storebench"
	"github.com/agentplatform/agentplatform/webhookgw/ingress"
)

// These flags set the load of BenchmarkPeak. hack/bench.sh passes them on.
var (
	peakRuns    = flag.Int("peak.runs", 64, "runs with the largest journals that are claimed")
	peakBodies  = flag.Int("peak.bodies", 64, "bodies that arrive slowly")
	peakSize    = flag.Int("peak.size", ingress.MaxBody, "bytes of each of them")
	peakCallers = flag.Int("peak.callers", 1000, "callers of a sync connector that wait")
)

const (
	// peakAim is the maximum memory of a gateway in MiB.
	peakAim = 400
	// peakProjects is the number of projects that share the body and caller slots. The last body slots are reserved for
	// projects that hold none. All body slots are therefore in use only if this many projects hold one each.
	peakProjects = 64
	// A body's pieces and how often one is sent: a body of 16 MiB takes a minute.
	peakPiece, peakEvery = 64 << 10, 250 * time.Millisecond
	// peakLimit is the limit of memory that the gateway is shipped with.
	peakLimit = "1GiB"
	// peakTimeout bounds every wait.
	peakTimeout = 5 * time.Minute
	// journalsToken is the token of the runners that resume runs.
	journalsToken = "bench-journals"
	// entryRoom is the maximum size of a journal entry without its text.
	entryRoom = 512
	// bodyBegin and bodyEnd enclose the padding of a body.
	bodyBegin, bodyEnd = `{"text":"`, `"}`
)

// BenchmarkPeak measures the peak memory of a gateway process and compares it with the limit. The gateway has all of this load
// at once:
//   - A runner claims runs with the largest journals and reads all journals.
//   - Large bodies arrive slowly.
//   - Callers of a sync connector wait.
func BenchmarkPeak(b *testing.B) {
	silence(b)
	db := openPostgres(b)
	var hooks, inbound []string // no runner executes the accepted runs
	for range peakProjects {
		scene := storebench.NewScene(b, db.store, 1)
		release(b, db.store, scene, scripted{name: agentName, text: "Hello."})
		hooks = append(hooks, pathOf(scene, connect(b, db.store, scene, "sync", agentName)))
		inbound = append(inbound, pathOf(scene, scene.Connector))
	}
	longJournals(b, db, *peakRuns)

	gw, public, internal := gatewayProcess(b, db)
	answered := wait(b, public, hooks, *peakCallers)
	require.Eventually(b, func() bool {
		waiting, err := db.count(b.Context(), `SELECT count(*) FROM open_connector_runs`)
		return err == nil && waiting >= int64(*peakRuns+*peakCallers)
	}, time.Minute, 50*time.Millisecond, "not all callers wait; some were answered: %d", len(answered))
	var bodies errgroup.Group
	for i := range *peakBodies {
		bodies.Go(func() error { return trickle(public, inbound[i%len(inbound)], *peakSize) })
	}
	readJournals(b, internal, *peakRuns)
	require.NoError(b, bodies.Wait())
	require.Empty(b, answered, "callers no longer wait")
	print(b, Cost("memory/webhookgw/peak", "MiB", gw.peak(b), peakAim, 1))
}

// gatewayProcess starts a gateway with the limit of memory that it is shipped with.
func gatewayProcess(b *testing.B, db *database) (gw *process, public, internal string) {
	b.Helper()
	b.Setenv("GOMEMLIMIT", peakLimit)
	bin, dsn := filepath.Join(b.TempDir(), "webhookgw"), filepath.Join(b.TempDir(), "dsn")
	out, err := exec.CommandContext(b.Context(), "go", "build", "-ldflags", "-s -w", "-o", bin, "../../cmd/webhookgw").CombinedOutput()
	require.NoError(b, err, string(out))
	require.NoError(b, os.WriteFile(dsn, []byte(db.dsn), 0o600))
	public, internal = freeAddr(b), freeAddr(b)
	gw = start(b, bin, "--store-dsn-file="+dsn, "--public-addr="+public, "--internal-addr="+internal)
	require.Eventually(b, func() bool {
		resp, err := http.Get("http://" + public + "/readyz")
		if err == nil {
			resp.Body.Close()
		}
		return err == nil && resp.StatusCode == http.StatusOK
	}, time.Minute, 50*time.Millisecond, "%s", &gw.log)
	return gw, public, internal
}

// pathOf returns the webhook path of a connector.
func pathOf(scene *storebench.Scene, connector uuid.UUID) string {
	return "/hooks/" + scene.Project.String() + "/" + connector.String()
}

// longJournals queues the given number of runs of a project with journals of the maximum size.
func longJournals(b *testing.B, db *database, runs int) {
	b.Helper()
	scene := storebench.NewScene(b, db.store, 1)
	admitWith(b, db.store, scene, journalsToken)
	release(b, db.store, scene, scripted{name: agentName, text: "Hello."})
	queue(b, db.store, store.Key{ProjectID: scene.Project, ID: connect(b, db.store, scene, "inbound", agentName)}, runs)
	claimed, err := db.store.Claim(b.Context(), store.Claim{
		Environment: store.Key{ProjectID: scene.Project, ID: scene.Environment}, RunnerID: "before", Slots: 2 * runs, Limit: runs, Lease: peakTimeout,
	})
	require.NoError(b, err)
	require.Len(b, claimed.Runs, runs)
	entry := `{"text":"` + strings.Repeat("x", store.MaxModelAnswer-entryRoom) + `"}`
	for _, run := range claimed.Runs {
		lease := store.Lease{Run: run.Run.Key(), Token: run.Token}
		for n := range store.MaxJournal / store.MaxModelAnswer {
			require.NoError(b, db.store.AppendJournal(b.Context(), lease, []store.JournalEntry{
				{Sequence: int64(n) + 1, Kind: store.JournalModelAnswer, Data: []byte(entry), Usage: &store.ModelUsage{Model: "p/m"}},
			}))
		}
		require.NoError(b, db.store.Release(b.Context(), lease, 0))
	}
	_, err = db.store.Reclaim(b.Context(), store.Key{ProjectID: scene.Project, ID: scene.Environment}, "before", nil)
	require.NoError(b, err)
}

// wait starts callers of sync connectors. The returned channel receives their responses.
func wait(b *testing.B, addr string, paths []string, callers int) (answered chan string) {
	b.Helper()
	answered = make(chan string, callers)
	for i := range callers {
		c := dial(b, addr, paths[i%len(paths)])
		_, err := c.conn.Write(c.request)
		require.NoError(b, err)
		go func() {
			line, err := c.reader.ReadString('\n')
			if err == nil {
				answered <- line
			}
		}()
	}
	return answered
}

// trickle posts a body slowly; its answer must be 200.
func trickle(addr, path string, size int) error {
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	if _, err := fmt.Fprintf(conn, "POST %s HTTP/1.1\r\nHost: %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s",
		path, addr, size, bodyBegin); err != nil {
		return err
	}
	ticks := time.NewTicker(peakEvery)
	defer ticks.Stop()
	piece := []byte(strings.Repeat("x", peakPiece))
	for left := size - len(bodyBegin) - len(bodyEnd); left > 0; left -= len(piece) {
		piece = piece[:min(left, len(piece))]
		if _, err := conn.Write(piece); err != nil {
			return err
		}
		<-ticks.C
	}
	if _, err := io.WriteString(conn, bodyEnd); err != nil {
		return err
	}
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		said, err := io.ReadAll(resp.Body)
		return fmt.Errorf("a body of %d bytes was answered %s: %s: %w", size, resp.Status, said, cmpErr(err, errStatus))
	}
	return nil
}

// readJournals claims runs and reads all their journals at once, as their runner does.
func readJournals(b *testing.B, addr string, runs int) {
	b.Helper()
	ctx, cancel := context.WithTimeout(b.Context(), peakTimeout)
	defer cancel()
	client, err := dispatchapi.NewClient(dispatchapi.Options{URL: "http://" + addr, Token: journalsToken})
	require.NoError(b, err)
	var claimed []dispatchapi.Run
	var held dispatchapi.Leases
	var beat dispatchapi.HeartbeatRequest
	for len(claimed) < runs {
		resp, err := client.Claim(ctx, dispatchapi.ClaimRequest{RunnerID: "after", Slots: 2 * runs, Limit: runs - len(claimed), Holding: held, WaitSeconds: 1})
		require.NoError(b, err)
		for _, run := range resp.Runs {
			lease := dispatchapi.Lease{RunID: run.ID, Token: run.Token}
			held, beat.Leases = append(held, lease), append(beat.Leases, dispatchapi.Held{Lease: lease})
		}
		claimed = append(claimed, resp.Runs...)
		_, err = client.Heartbeat(ctx, beat)
		require.NoError(b, err)
	}
	var reads errgroup.Group
	for _, run := range claimed {
		reads.Go(func() error {
			entries, err := client.ReadJournal(ctx, run.ID, run.Token)
			if err == nil && len(entries) != store.MaxJournal/store.MaxModelAnswer {
				err = fmt.Errorf("a journal has %d entries", len(entries))
			}
			return err
		})
	}
	require.NoError(b, reads.Wait())
}
