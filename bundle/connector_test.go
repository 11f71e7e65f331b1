// SPDX-License-Identifier: Apache-2.0

package bundle_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/bundle"
)

func TestParseConnector_ReportsProblems(t *testing.T) {
	t.Parallel()
	c, err := bundle.ParseConnector("orders", []byte("type: webhook\nmode: sync\nagents: [ok]\n"), []string{"ok"})
	require.NoError(t, err)
	require.Equal(t, "orders", c.Key)
	require.Empty(t, c.Unsupported())
	for content, want := range map[string]string{
		"type: webhook\nmode: sync\nagents: [who]\n": `connectors/orders.yaml:3:1: no agent is named "who"`,
		"type: mail\n":       `"type" must be one of webhook, cron`,
		"# nothing\n":        "connectors/orders.yaml:1:1: file is empty",
		"[a]\n":              "connectors/orders.yaml:1:1",
		"type: *a\n":         `unknown alias "a"`,
		"a: &a [*a]\n":       `unknown alias "a"`,
		"type: &t\n  - *t\n": "connectors/orders.yaml",
		"type: cron\nconfig: {schedule: '@daily', prompt: 'Go ${'}\n":                                                                  `connectors/orders.yaml:2:30: "prompt" has ${ that is not followed by a variable name`,
		"type: cron\nconfig: {schedule: '${', timezone: '${A'}\n":                                                                      `"timezone" has ${ that is not`,
		"type: cron\nconfig: {schedule: '@daily', payload: {a: ['${']}}\n":                                                             `"payload" has ${ that is not`,
		"type: cron\nconfig: {schedule: '@daily', payload: {'${A}': 1}}\n":                                                             `"payload" has ${ in the name of a field`,
		"type: cron\nname: \"a\\u202Eb\"\nconfig: {schedule: '@daily'}\n":                                                              `connectors/orders.yaml:2:1: "name" must not have control characters`,
		"type: cron\nname: ' a'\nconfig: {schedule: '@daily'}\n":                                                                       `connectors/orders.yaml:2:1: "name" must have no white space around it`,
		"type: cron\nname: '  '\nconfig: {schedule: '@daily'}\n":                                                                       `connectors/orders.yaml:2:1: "name" must not be blank`,
		"type: cron\nname: X ${A}\nconfig: {schedule: '@daily'}\n":                                                                     `connectors/orders.yaml:2:1: "name" must be at most 63 characters without ${`,
		"type: cron\nconfig: {schedule: '@daily'}\nagents: [ok" + strings.Repeat(", ok", 100) + "]\n":                                  "more than 100 links",
		"type: cron\nconfig: {schedule: '@daily', prompt: '" + strings.Repeat("é", 16<<10+1) + "'}\n":                                  `connectors/orders.yaml:2:38: "config.prompt" must have at most 16384 characters`,
		"type: webhook\nmode: outbound\nconfig: {url: 'https://a/" + strings.Repeat("a", 2048) + "'}\n":                                `connectors/orders.yaml:3:15: "config.url" must have at most 2048 characters`,
		"type: webhook\nmode: outbound\nconfig: {url: 'https://a', retry: {schedule_seconds: [0" + strings.Repeat(", 1", 20) + "]}}\n": `connectors/orders.yaml:3:54: "config.retry.schedule_seconds" must have at most 20 items`,
	} {
		t.Run(fmt.Sprintf("%.60s", content), func(t *testing.T) {
			_, err := bundle.ParseConnector("orders", []byte(content), []string{"ok"})
			require.ErrorContains(t, err, want, content)
		})
	}
}

func TestConnector_Unsupported(t *testing.T) {
	t.Parallel()
	for content, want := range map[string]string{
		"type: webhook\nmode: outbound\nconfig: {url: 'https://example.com'}\n":                                      "",
		"type: webhook\nmode: outbound\nconfig: {url: '${A}'}\nlinks: [{agent: ok, outbound: {mode: middleware}}]\n": "",
		"type: webhook\nmode: inbound\nconfig: {authentication: none}\n":                                             "a file cannot define a webhook without authentication",
		"type: webhook\nmode: inbound\nconfig: {require_authentication: false}\n":                                    "a file cannot define a webhook without authentication",
		"type: webhook\nmode: inbound\nconfig: {require_authentication: true}\n":                                     "",
		"type: cron\nconfig: {schedule: '${WHEN}', timezone: '${ZONE}', prompt: '$${x}'}\n":                          "",
	} {
		t.Run(fmt.Sprintf("%.60s", content), func(t *testing.T) {
			c, err := bundle.ParseConnector("c", []byte(content), []string{"ok"})
			require.NoError(t, err)
			if want == "" {
				require.Empty(t, c.Unsupported(), content)
				return
			}
			require.ErrorContains(t, c.Unsupported(), want)
		})
	}
}

func TestParse_LimitsConnectors(t *testing.T) {
	t.Parallel()
	many := bundle.Files{"agents/ok.yaml": []byte(okAgent)}
	for i := range bundle.MaxConnectors + 1 {
		many[fmt.Sprintf("connectors/c%d.yaml", i)] = []byte("type: cron\nconfig: {schedule: '@daily'}\n")
	}
	_, err := bundle.Parse(many)
	require.EqualError(t, err, "connectors: more than 100 connectors, or files of more than 1024 KiB together")
	delete(many, "connectors/c0.yaml")
	_, err = bundle.Parse(many)
	require.NoError(t, err)
	linked := bundle.Files{}
	for i := range bundle.MaxAllLinks/50 + 1 {
		links := "type: cron\nconfig: {schedule: '@daily'}\nagents: [a0"
		for j := range 50 {
			linked[fmt.Sprintf("agents/a%d.yaml", j)] = []byte(strings.Replace(okAgent, "ok", fmt.Sprint("a", j), 1))
			if j > 0 {
				links += fmt.Sprint(", a", j)
			}
		}
		linked[fmt.Sprintf("connectors/c%d.yaml", i)] = []byte(links + "]\n")
	}
	_, err = bundle.Parse(linked)
	require.EqualError(t, err, "connectors: the connectors have more than 500 links together")
	delete(linked, "connectors/c0.yaml")
	_, err = bundle.Parse(linked)
	require.NoError(t, err)
	for name := range many {
		if name != "agents/ok.yaml" {
			many[name] = append(many[name], "# "+strings.Repeat("x", 20<<10)...)
		}
	}
	_, err = bundle.Parse(many)
	require.ErrorContains(t, err, "files of more than 1024 KiB together")
}

// The length of a prompt counts as written, also with ${NAME}, because an object mirrors the file.
func TestParse_LimitsPromptWithVariables(t *testing.T) {
	t.Parallel()
	_, err := bundle.ParseConnector("c", []byte("type: cron\nconfig: {schedule: '@daily', prompt: '${A}"+strings.Repeat("x", 16<<10)+"'}\n"), nil)
	require.ErrorContains(t, err, `"config.prompt" must have at most 16384 characters`)
}

func TestParse_ReportsConnectorProblems(t *testing.T) {
	t.Parallel()
	_, err := bundle.Parse(newFiles(
		"agents/ok.yaml", okAgent,
		"connectors/A_b.yaml", "type: webhook\nmode: inbound\n",
		"connectors/c.yaml", "type: cron\nconfig: {schedule: 'x', timezone: Mars, missed_ticks: all, payload: [1]}\nagents: [who]\n",
		"connectors/d.yaml", "type: webhook\nmode: outbound\nconfig:\n  url: ftp://x\n  headers: {X-Service-Secret: a}\n  schedule: '@hourly'\n",
		"connectors/e.yaml", "type: mail\n",
		"connectors/f.yaml", "type: webhook\n",
		"connectors/g.yaml", "type: webhook\nmode: inbound\nconfig: {authentication: github, require_authentication: false, context_headers: [a b, Cookie]}\n",
		"connectors/h.yaml", "type: webhook\nmode: sync\nconfig: {authentication: GitHub, context_headers: [a"+strings.Repeat(", a", 16)+"]}\n",
	))
	require.EqualError(t, err, strings.Join([]string{
		`connectors/A_b.yaml: the name of a connector's file must be at most 40 lower-case letters, digits and inner dashes; rename it`,
		`connectors/c.yaml:2:10: "schedule" must have five fields, such as "0 6 * * 1-5", or be one of @yearly, @annually, @monthly, @weekly, @daily, @midnight and @hourly`,
		`connectors/c.yaml:2:25: "timezone" must be the IANA name of a time zone, such as Europe/Paris`,
		`connectors/c.yaml:2:55: "config.missed_ticks" must be one of skip, latest`,
		`connectors/c.yaml:2:60: "payload" must be a JSON object`,
		`connectors/c.yaml:3:1: no agent is named "who"; write it or correct the name`,
		`connectors/d.yaml:4:3: "url" must be an http or https URL, such as https://example.com/results`,
		`connectors/d.yaml:5:3: "headers" has the header "X-Service-Secret", which the platform sets itself: remove it`,
		`connectors/d.yaml:6:3: "schedule" is not for outbound webhook connectors; their keys are timeout_seconds, url, headers, retry`,
		`connectors/e.yaml:1:7: "type" must be one of webhook, cron`,
		`connectors/f.yaml:1:1: missing key "mode", which type webhook requires; write mode: inbound`,
		`connectors/g.yaml:3:34: "require_authentication" contradicts "authentication"; remove one of them`,
		`connectors/g.yaml:3:65: "context_headers" has "a b", which must be the name of a header, such as X-GitHub-Event`,
		`connectors/g.yaml:3:65: "context_headers" has "Cookie", which must not be a header with a credential, a signature or an idempotency key: runs never see it`,
		`connectors/h.yaml:3:26: "config.authentication" must be one of secret, none, github, gitlab, stripe, slack, standard_webhooks`,
		`connectors/h.yaml:3:51: "config.context_headers" must have at most 16 items`,
	}, "\n"))
}
