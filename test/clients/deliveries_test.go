// SPDX-License-Identifier: Apache-2.0

package clients

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"
	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/internal/secrets"
	"github.com/agentplatform/agentplatform/store"
)

// delivery is a request that a receiver got, with the secret that verifies it.
type delivery struct {
	Secret  string            `json:"secret"`
	Headers map[string]string `json:"headers"` // By their names in lower case.
	Body    []byte            `json:"body"`

	header http.Header
}

// deliver ends a run, and returns the delivery of its result.
func (p *platform) deliver() delivery {
	p.t.Helper()
	arrived := make(chan delivery, 1)
	receiver := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return // The gateway sends it again.
		}
		d := delivery{Body: body, Headers: map[string]string{}, header: r.Header.Clone()}
		for name := range r.Header {
			d.Headers[strings.ToLower(name)] = r.Header.Get(name)
		}
		arrived <- d
	}))
	p.t.Cleanup(receiver.Close)
	out := p.connector("results", func(c *store.Connector) {
		c.Mode, c.Config, c.SecretKey = "outbound", []byte(fmt.Sprintf(`{"url":%q}`, receiver.URL)), p.derivation
	})
	in := p.connector("events", nil)
	answer, err := http.Post(p.webhookURL(in), "application/json", strings.NewReader(`{}`))
	require.NoError(p.t, err)
	require.NoError(p.t, answer.Body.Close())
	require.Equal(p.t, http.StatusOK, answer.StatusCode)
	claimed, err := p.store.Claim(p.t.Context(), store.Claim{
		Environment: store.Key{ProjectID: p.project, ID: p.environment}, RunnerID: "one", Slots: 1, Limit: 1, Lease: time.Hour,
	})
	require.NoError(p.t, err)
	require.Len(p.t, claimed.Runs, 1)
	_, err = p.store.Complete(p.t.Context(), []store.Completion{{
		Lease: store.Lease{Run: claimed.Runs[0].Run.Key(), Token: claimed.Runs[0].Token}, Status: store.RunCompleted, Output: "Grüße, \"Ada\"\n",
	}})
	require.NoError(p.t, err)
	d := <-arrived
	d.Secret, err = p.keys.SigningSecret(p.derivation, secrets.Generated{ProjectID: p.project, ConnectorID: out.ID, Version: 1})
	require.NoError(p.t, err)
	return d
}

// changed returns deliveries that fail verification, by the reason.
func (d delivery) changed() map[string]delivery {
	with := func(name, value string) delivery {
		other := delivery{Secret: d.Secret, Body: d.Body, Headers: map[string]string{}}
		for name, value := range d.Headers {
			other.Headers[name] = value
		}
		if other.Headers[name] = value; value == "" {
			delete(other.Headers, name)
		}
		return other
	}
	body, secret := with("x", "y"), with("x", "y")
	body.Body, secret.Secret = append([]byte(" "), d.Body...), "whsec_b3RoZXI="
	return map[string]delivery{
		"another body": body, "another secret": secret, "another time": with("x-service-timestamp", fmt.Sprint(time.Now().Unix()+1)),
		"no time": with("x-service-timestamp", ""), "a time that is none": with("x-service-timestamp", "now"),
		"no signature": with("x-service-signature", ""), "a short signature": with("x-service-signature", "00"), "no hexadecimal": with("x-service-signature", "zz"),
	}
}

// Each recipe of the documentation runs unchanged.
func TestRecipes_OfDocumentationRun(t *testing.T) {
	d := startPlatform(t).deliver()
	for language, judge := range map[string]func(t *testing.T, recipe string, d delivery) string{
		"go": func(t *testing.T, recipe string, d delivery) string {
			dir := t.TempDir()
			writeFile(t, dir, "genuine.go", "package main\n"+recipe)
			writeFile(t, dir, "main.go", `package main

import ("encoding/json"; "fmt"; "net/http"; "os")

func main() {
	var d struct { Secret string; Headers map[string]string; Body []byte }
	if err := json.NewDecoder(os.Stdin).Decode(&d); err != nil { panic(err) }
	headers := http.Header{}
	for name, value := range d.Headers { headers.Set(name, value) }
	fmt.Print(genuine(d.Secret, headers, d.Body))
}`)
			return run(t, encoded(t, d), dir, "go", "run", "genuine.go", "main.go")
		},
		"python": func(t *testing.T, recipe string, d delivery) string {
			return run(t, encoded(t, d), "", "python3", "-c", recipe+`
import base64, email.message, json, sys
d = json.load(sys.stdin)
headers = email.message.Message()
for name, value in d["headers"].items():
    headers[name] = value
print(str(genuine(d["secret"], headers, base64.b64decode(d["body"]))).lower(), end="")`)
		},
		"js": func(t *testing.T, recipe string, d delivery) string {
			return run(t, encoded(t, d), "", "node", "--input-type=module", "-e", recipe+`
import { readFileSync } from "node:fs";
const d = JSON.parse(readFileSync(0));
process.stdout.write(String(genuine(d.secret, d.headers, Buffer.from(d.body, "base64"))));`)
		},
		"sh": func(t *testing.T, recipe string, d delivery) string {
			dir := t.TempDir()
			writeFile(t, dir, "body.json", string(d.Body))
			recipe = "secret=$1 timestamp=$2 signature=$3\n" + recipe + " || true"
			out := run(t, nil, dir, "sh", "-c", recipe, "sh", d.Secret, d.Headers["x-service-timestamp"], d.Headers["x-service-signature"])
			return fmt.Sprint(strings.TrimSpace(out) == "genuine")
		},
	} {
		t.Run(language, func(t *testing.T) {
			recipe := findRecipe(t, language)
			require.Equal(t, "true", judge(t, recipe, d))
			for name, changed := range d.changed() {
				if language == "sh" && strings.Contains(name, "time that is none") {
					continue // The shell rejects a text that is not a number.
				}
				require.Equal(t, "false", judge(t, recipe, changed), name)
			}
		})
	}
}

// findRecipe returns the code block of a language in the documentation that verifies a delivery.
func findRecipe(t *testing.T, language string) string {
	t.Helper()
	page, err := os.ReadFile("../../docs/webhooks.md")
	require.NoError(t, err)
	for _, block := range strings.Split(string(page), "```"+language+"\n")[1:] {
		if recipe, _, closed := strings.Cut(block, "\n```"); closed && strings.Contains(recipe, "genuine") {
			return recipe
		}
	}
	t.Fatalf("docs/webhooks.md has no recipe in %s", language)
	return ""
}

func writeFile(t *testing.T, dir, name, content string) {
	t.Helper()
	require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600))
}

func encoded(t *testing.T, d delivery) []byte {
	t.Helper()
	text, err := json.Marshal(d)
	require.NoError(t, err)
	return text
}

// The libraries for Go and npm verify deliveries.
func TestDelivery_VerifiesWithStandardWebhooksLibraries(t *testing.T) {
	d := startPlatform(t).deliver()
	library, err := standardwebhooks.NewWebhook(d.Secret)
	require.NoError(t, err)
	require.NoError(t, library.Verify(d.Body, d.header))

	dir := t.TempDir()
	for _, name := range []string{"package.json", "package-lock.json"} {
		content, err := os.ReadFile(name)
		require.NoError(t, err)
		writeFile(t, dir, name, string(content))
	}
	run(t, nil, dir, "npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund")
	verify := func(d delivery) string {
		return run(t, encoded(t, d), dir, "node", "--input-type=module", "-e", `
			import { readFileSync } from "node:fs";
			import { Webhook } from "standardwebhooks";
			const d = JSON.parse(readFileSync(0));
			let said = "genuine";
			try { new Webhook(d.secret).verify(Buffer.from(d.body, "base64").toString(), d.headers); } catch (e) { said = e.name; }
			process.stdout.write(said);`)
	}
	require.Equal(t, "genuine", verify(d))
	require.Equal(t, "WebhookVerificationError", verify(d.changed()["another body"]))
	require.Equal(t, "WebhookVerificationError", verify(d.changed()["another secret"]))
}
