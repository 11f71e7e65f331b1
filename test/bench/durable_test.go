// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"bufio"
	"flag"
	"fmt"
	"io"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/internal/testenv"
	"github.com/agentplatform/agentplatform/store"
	"github.com/agentplatform/agentplatform/store/storetest/storebench"
)

// durableRuns is the load of BenchmarkDurable. hack/bench.sh passes it on.
var durableRuns = flag.Int("durable.runs", 10_000, "queued runs of three steps that a round of BenchmarkDurable executes, of each kind")

// durableAim is the least ratio to the rate of DBOS.
const durableAim = 3

// threeSteps returns a repository with three agents of three steps. Each step returns a text: of answers from a model, of scripts
// from a script in a process of its own, of writes after a POST.
func threeSteps(url string) fstest.MapFS {
	files := fstest.MapFS{}
	add := func(path, format string, args ...any) {
		files[path] = &fstest.MapFile{Data: fmt.Appendf(nil, format, args...)}
	}
	add("agents/answers.yaml", "name: answers\ntype: sequential\nagents: [first, second, third]\n")
	for _, name := range []string{"first", "second", "third"} {
		add("agents/"+name+".yaml", "name: %s\nmodel: scripted/step\nsystem_prompt: Greet.\n", name)
	}
	add("models/step.yaml", "steps: [{text: %s}]\n", output)
	add("agents/scripts.yaml", "name: scripts\ntype: sequential\nsteps: [{tool: say.text}, {tool: say.text}, {tool: say.text, as: last}]\noutput: last.result\n")
	add("tools/say.star", "def text():\n    \"\"\"Says a text.\"\"\"\n    return \"%s\"\n", output)
	add("agents/writes.yaml", "name: writes\ntype: sequential\nsteps: [{tool: bench.write}, {tool: bench.write}, {tool: bench.write, as: last}]\noutput: last.result\n")
	add("tools/bench.yaml", "base_url: %s\ntools:\n  write: {description: Writes., request: POST /, result: '\"%s\"'}\n", url, output)
	return files
}

// BenchmarkDurable measures queued runs of three steps on PostgreSQL. The yardstick is DBOS, another durable engine, with as many
// queued workflows of the same three steps in another database of the same server, and as many slots.
func BenchmarkDurable(b *testing.B) {
	silence(b)
	bin := b.TempDir()
	for name, folder := range map[string]string{"dbos": "../../hack/tools/dbos", "empty": "empty"} {
		out, err := exec.CommandContext(b.Context(), "go", "build", "-C", folder, "-ldflags", "-s -w", "-o", filepath.Join(bin, name), ".").CombinedOutput()
		require.NoError(b, err, string(out))
	}
	url := "http://" + serveEmpty(b, filepath.Join(bin, "empty"))
	for _, row := range []struct {
		agent, target string
		aim           float64
	}{{"answers", "", durableAim}, {"scripts", "", 0}, {"writes", url, durableAim}} {
		b.Run(row.agent, func(b *testing.B) {
			title := "durable/three " + row.agent
			alternate(b, func() (figures []Figure) {
				b.Run("round", func(b *testing.B) { // closes the round's resources at its end
					dbos := paceOfDBOS(b, filepath.Join(bin, "dbos"), row.target)
					platform := paceOfSteps(b, openPostgres(b), threeSteps(url), row.agent)
					figures = []Figure{
						Rate(title, "runs/s", platform.rate, dbos.rate, row.aim),
						Cost(title+"/cpu a run", "ms", platform.cpu(), dbos.cpu(), 0),
						Cost(title+"/cpu a run/of that the engine", "ms", platform.own, dbos.own, 0),
						Cost(title+"/cpu a run/of that the database server", "ms", platform.server, dbos.server, 0),
					}
				})
				require.NotEmpty(b, figures, "the round has said why")
				return figures
			})
		})
	}
}

// paceOfDBOS measures workflows of the program hack/tools/dbos in a new database. Each step sends a POST to target, unless it is "".
func paceOfDBOS(b *testing.B, program, target string) pace {
	b.Helper()
	dsn := testenv.Postgres(b)
	p := exec.CommandContext(b.Context(), program, dsn, strconv.Itoa(*durableRuns), strconv.Itoa(executedSlots), target)
	var log strings.Builder
	p.Stderr = &log
	in, err := p.StdinPipe()
	require.NoError(b, err)
	out, err := p.StdoutPipe()
	require.NoError(b, err)
	require.NoError(b, p.Start())
	lines := bufio.NewReader(out)
	_, err = lines.ReadString('\n') // all workflows are queued
	require.NoError(b, err, "%s", &log)
	m := newMeter(b, dsn)
	before := m.spent(b)
	_, err = io.WriteString(in, "\n")
	require.NoError(b, err)
	var seconds, milliseconds float64
	_, err = fmt.Fscan(lines, &seconds, &milliseconds)
	require.NoError(b, err, "%s", &log)
	spent := m.spent(b).since(before)
	require.NoError(b, p.Wait(), "%s", &log)
	return pace{rate: float64(*durableRuns) / seconds, own: milliseconds / float64(*durableRuns), server: perRun(spent.server, *durableRuns)}
}

// paceOfSteps measures queued runs of an agent of threeSteps in an empty database.
func paceOfSteps(b *testing.B, db *database, sources fstest.MapFS, agent string) pace {
	b.Helper()
	s := storebench.NewScene(b, db.store, 1)
	releaseFiles(b, db.store, s, sources, agent)
	admit(b, db.store, s)
	queue(b, db.store, store.Key{ProjectID: s.Project, ID: connect(b, db.store, s, "inbound", agent)}, *durableRuns)
	p := paceOfRunner(b, db, s.Project, newHost(b).engine, *durableRuns, executedSlots)
	completed, err := db.count(b.Context(), `SELECT count(*) FROM ended_runs WHERE status = 'completed' AND output = '`+output+`'`)
	require.NoError(b, err)
	require.EqualValues(b, *durableRuns, completed, "not all runs ended as they should")
	return p
}
