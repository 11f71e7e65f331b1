// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/google/uuid"
	"github.com/spf13/cobra"
	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/internal/keys"
)

// catalogue is a project with names that more than one of its things has. It has nothing but lists:
// It records other calls, and responds to them with 404.
type catalogue struct {
	t        *testing.T
	url      string
	key, id  string
	commit   string
	uploaded string

	mu     sync.Mutex
	called []string
}

// IDs of the objects of the catalogue.
var (
	live, redeployed, upload, elsewhere    = numbered(1), numbered(2), numbered(3), numbered(4)
	orders, results, retired, stagedOrders = numbered(5), numbered(6), numbered(7), numbered(8)
	former, ask, dotted, stagedAsk         = numbered(9), numbered(10), numbered(11), numbered(12)
)

func numbered(n int) string { return fmt.Sprintf("00000000-0000-4000-8000-%012d", n) }

func newCatalogue(t *testing.T) *catalogue {
	t.Helper()
	c := &catalogue{
		t: t, key: keys.Generate().String(), id: uuid.NewString(),
		commit: "2fd4e1c67a2d28fced849ee1bb76e7391b93eb12", uploaded: "2c26b46b68ffc68ff99b453c1d30413413422d706483bfa0f98a5e886266e7ae",
	}
	server := httptest.NewServer(c)
	t.Cleanup(server.Close)
	c.url = server.URL
	return c
}

func (c *catalogue) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	c.mu.Lock()
	defer c.mu.Unlock()
	path := strings.TrimPrefix(r.URL.Path, "/v1/projects/"+c.id)
	one := func(id, fields string) string { return fmt.Sprintf(`{"id":%q,%s}`, id, fields) }
	answers := map[string][]string{
		"/environments": {one(numbered(91), `"slug":"production","is_default":true`), one(numbered(92), `"slug":"staging"`)},
		"/deployments?environment_id=" + numbered(91): {
			one(live, `"is_live":true,"status":"deployed","source":{"commit":"`+c.commit+`"}`),
			one(redeployed, `"status":"deployed","source":{"commit":"2fd4ffff7a2d28fced849ee1bb76e7391b93eb12"}`),
			one(upload, `"status":"failed","source":{"digest":"sha256:`+c.uploaded+`"}`),
		},
		"/deployments?environment_id=" + numbered(92): {one(elsewhere, `"status":"deployed","source":{"commit":"`+c.commit+`"}`)},
		"/connectors?environment_id=" + numbered(91): {
			one(orders, `"name":"orders","mode":"inbound"`), one(results, `"name":"results","mode":"outbound"`), one(former, `"name":"results","mode":"inbound","retired":true`),
			one(ask, `"name":"ask","mode":"sync","defined_in_code":true`), one(dotted, `"name":"production.own","mode":"sync"`),
		},
		"/connectors?environment_id=" + numbered(92): {
			one(retired, `"name":"results","mode":"outbound","retired":true`), one(stagedOrders, `"name":"orders","mode":"inbound"`),
			one(stagedAsk, `"name":"ask","mode":"sync","defined_in_code":true`),
		},
	}
	if r.URL.RawQuery != "" {
		path += "?" + r.URL.RawQuery
	}
	if list, known := answers[path]; known {
		fmt.Fprintf(w, "[%s]", strings.Join(list, ","))
		return
	}
	c.called = append(c.called, path)
	problemAnswer(http.StatusNotFound, "not_found")(w)
}

// agentctl runs a command, and says what it called first besides lists.
func (c *catalogue) agentctl(args ...string) (called string, err error) {
	c.t.Helper()
	c.called = nil
	_, _, err = run(c.t, append(args, "--server", c.url, "--project", c.id, "--api-key", c.key)...)
	if len(c.called) > 0 {
		called = c.called[0]
	}
	return called, err
}

// findCommands returns the commands below cmd that have an argument, with the flag before it.
func findCommands(cmd *cobra.Command, what string) (found [][]string) {
	for _, sub := range cmd.Commands() {
		for _, below := range findCommands(sub, what) {
			found = append(found, append([]string{sub.Name()}, below...))
		}
		words := strings.Fields(strings.NewReplacer("[", " ", "]", " ", "(", " ", ")", " ").Replace(sub.Use))
		for i, word := range words {
			switch {
			case word != what:
			case words[i-1] == "--connector":
				found = append(found, []string{sub.Name(), "--connector"})
			default:
				found = append(found, []string{sub.Name()})
			}
		}
	}
	return found
}

// Each command that accepts a deployment or a connector accepts its names.
func TestNames_IdentifyObjects(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "event.json")
	require.NoError(t, os.WriteFile(file, []byte(`{}`), 0o600))
	more := map[string]string{"trigger": file, "replay": uuid.NewString()}
	c := newCatalogue(t)
	for what, of := range map[string]struct {
		path   string
		count  int
		meant  map[string]string
		errors map[string]string
	}{
		"DEPLOYMENT": {"/deployments/", 5, map[string]string{
			live: live, uuid.Max.String(): uuid.Max.String(), "2fd4ffff": redeployed, "2FD4FFF": redeployed, "sha256:2c26b46b": upload, "sha256:2C26B46": upload,
			"2fd4e1c6 --environment staging": elsewhere, "2fd4e1c6 --environment production": live,
		}, map[string]string{
			"2fd4e1c6":                       `"2fd4e1c6" is ambiguous; use an ID: ` + live + ` (production, live), ` + elsewhere + ` (staging, deployed)`,
			"abcdef0":                        `the project has no "abcdef0", or the key cannot see it; there is 2fd4e1c6 (production, live), 2fd4ffff (production, deployed), sha256:2c26b46b (production, failed), 2fd4e1c6 (staging, deployed)`,
			"2fd4ff":                         "must be the ID of a deployment, or the first 7 or more characters of its commit",
			"sha256:2c26b4":                  "or of its digest after sha256:",
			"2c26b46b":                       `the project has no "2c26b46b"`,
			"2fd4e1c6 --environment nowhere": `--environment: the project has no "nowhere", or the key cannot see it; there is production, staging`,
		}},
		"CONNECTOR": {"/connectors/", 5, map[string]string{
			orders: orders, "results --environment production": results, "results --environment staging": retired, "orders --environment staging": stagedOrders,
			"ask --environment production": ask, "ask --environment staging": stagedAsk,
		}, map[string]string{
			"orders":  `"orders" is ambiguous; use an ID: ` + orders + ` (production, inbound), ` + stagedOrders + ` (staging, inbound)`,
			"ask":     `"ask" is ambiguous; use an ID: ` + ask + ` (production, sync), ` + stagedAsk + ` (staging, sync)`,
			"own":     `the project has no "own"`,
			"results": `"results" is ambiguous; use an ID: ` + results + ` (production, outbound), ` + retired + ` (staging, outbound, retired)`,
			"order":   `the project has no "order", or the key cannot see it; there is orders (production, inbound), results (production, outbound), results (production, inbound, retired), ask (production, sync), production.own (production, sync), results (staging, outbound, retired), orders (staging, inbound), ask (staging, sync)`,
		}},
	} {
		t.Run(what, func(t *testing.T) {
			commands := findCommands(newRootCommand("agentctl"), what)
			require.Len(t, commands, of.count, "%v", commands)
			for _, command := range commands {
				line := func(name string) []string {
					args := append(append([]string{}, command...), strings.Fields(name)...)
					if file := more[command[0]]; file != "" {
						args = append(args, file)
					}
					return args
				}
				for name, id := range of.meant {
					called, err := c.agentctl(line(name)...)
					require.ErrorContains(t, err, "404", "%v %s", command, name)
					require.Truef(t, called == of.path+id || strings.HasPrefix(called, of.path+id+"/"), "%v %s: %s", command, name, called)
				}
				for name, want := range of.errors {
					called, err := c.agentctl(line(name)...)
					require.ErrorContains(t, err, want, "%v %s", command, name)
					require.Empty(t, called)
				}
			}
		})
	}
}

// Shells complete the name of an object if it is unique, and else its ID.
func TestCompletion_OffersUniqueNames(t *testing.T) {
	c := newCatalogue(t)
	t.Setenv("AGENTPLATFORM_ENVIRONMENT", "")
	t.Setenv("AGENTPLATFORM_SERVER", c.url)
	t.Setenv("AGENTPLATFORM_PROJECT", c.id)
	t.Setenv("AGENTPLATFORM_API_KEY", c.key)
	for line, want := range map[string][]string{
		"activate ":                                    {live + "\t2fd4e1c6 production, live", "2fd4ffff\tproduction, deployed", "sha256:2c26b46b\tproduction, failed", elsewhere + "\t2fd4e1c6 staging, deployed"},
		"logs --environment production ":               {"2fd4e1c6\tproduction, live", "2fd4ffff\tproduction, deployed", "sha256:2c26b46b\tproduction, failed"},
		"connectors test ":                             {orders + "\torders production, inbound", results + "\tresults production, outbound", former + "\tresults production, inbound, retired", ask + "\task production, sync", "production.own\tproduction, sync", retired + "\tresults staging, outbound, retired", stagedOrders + "\torders staging, inbound", stagedAsk + "\task staging, sync"},
		"listen --environment production --connector ": {"orders\tproduction, inbound", "results\tproduction, outbound", former + "\tresults production, inbound, retired", "ask\tproduction, sync", "production.own\tproduction, sync"},
		"replay --environment staging --connector ":    {"results\tstaging, outbound, retired", "orders\tstaging, inbound", "ask\tstaging, sync"},
	} {
		t.Run(line, func(t *testing.T) {
			out, _, err := run(t, append([]string{"__complete"}, strings.Split(line, " ")...)...)
			require.NoError(t, err)
			require.Equal(t, append(want, ":4"), strings.Split(strings.TrimSpace(out), "\n"))
		})
	}
}

// Without an argument a command takes the only deployment that fits. If several fit, it does nothing.
func TestChooseDeployment_FindsTheOnlyOne(t *testing.T) {
	t.Parallel()
	for command, fields := range map[string]string{
		"cancel":   `"status":"building"`,
		"activate": `"status":"deployed","is_live":false`,
	} {
		t.Run(command, func(t *testing.T) {
			p := newProject(t)
			p.cancels = true
			live := p.addDeployment(`"status":"deployed","is_live":true`)
			failed := p.addDeployment(`"status":"failed"`)
			_, _, err := p.agentctl(command)
			require.ErrorContains(t, err, "DEPLOYMENT: none can be "+command)
			require.ErrorContains(t, err, "; there is "+live+" 2fd4e1c6 (production, live), "+failed+" 2fd4e1c6 (production, failed)")
			require.Empty(t, p.called)

			one := p.addDeployment(fields)
			out, messages, err := p.agentctl(command)
			require.NoError(t, err)
			require.Equal(t, one+"\n", out)
			require.Contains(t, messages, one+" 2fd4e1c6 (production, ")
			require.Len(t, p.called, 1)
			require.Contains(t, p.called[0], "/deployments/"+one+"/"+command)

			two := p.addDeployment(fields)
			_, _, err = p.agentctl(command, "--environment", "production")
			require.ErrorContains(t, err, "DEPLOYMENT: 2 can be "+command)
			require.ErrorContains(t, err, "; name one: "+one+" 2fd4e1c6 (production, ")
			require.ErrorContains(t, err, ", "+two+" 2fd4e1c6 (production, ")
			require.NotContains(t, err.Error(), failed)
			require.Len(t, p.called, 1)
		})
	}
}

// Of several deployments of a commit, a command takes the one that fits.
func TestFindDeployment_PrefersDeploymentsThatFit(t *testing.T) {
	t.Parallel()
	p := newProject(t)
	p.cancels = true
	live := p.addDeployment(`"status":"deployed","is_live":true`)
	building := p.addDeployment(`"status":"building"`)
	p.addDeployment(`"status":"failed"`)
	out, _, err := p.agentctl("cancel", "2fd4e1c6")
	require.NoError(t, err)
	require.Equal(t, building+"\n", out)
	out, _, err = p.agentctl("activate", "2fd4e1c6")
	require.NoError(t, err)
	require.Equal(t, live+"\n", out)

	older := p.addDeployment(`"status":"deployed"`)
	_, _, err = p.agentctl("activate", "2fd4e1c6")
	require.EqualError(t, err, `DEPLOYMENT: "2fd4e1c6" is ambiguous; use an ID: `+live+" (production, live), "+older+" (production, deployed)")
	_, _, err = p.agentctl("logs", "2fd4e1c6")
	require.ErrorContains(t, err, "is ambiguous", "a log there is of each")
}
