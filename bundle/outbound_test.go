// SPDX-License-Identifier: Apache-2.0

package bundle_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/bundle"
	"github.com/agentplatform/agentplatform/connector"
)

const (
	outboundConnector = "type: webhook\nmode: outbound\nconfig: {url: 'https://${HOST}/x'}\n"
	syncConnector     = "type: webhook\nmode: sync\nagents: [ok]\n"
)

func TestParse_ReadsOutboundConnectors(t *testing.T) {
	t.Parallel()
	p, err := bundle.Parse(newFiles("agents/ok.yaml", okAgent, "connectors/ask.yaml", syncConnector,
		"connectors/crm.yaml", outboundConnector+"name: The CRM\nlinks: [{agent: ok, outbound: {mode: agent_tool}}]\n",
		"connectors/ops.yaml", outboundConnector+"links: [{agent: ok, outbound: {mode: agent_tool, action_name: tell}}]\n",
		"connectors/results.yaml", outboundConnector+"links: [{agent: ok, outbound: {source_connectors: [ask], statuses: [completed, delivery_failed]}}]\n"))
	require.NoError(t, err)
	require.Equal(t, []bundle.Action{{Name: "send_to_the_crm", Connector: "The CRM"}, {Name: "tell", Connector: "ops"}}, p.Actions("ok"))
	require.Empty(t, p.Actions("other"))
	for _, c := range p.Connectors {
		require.Empty(t, c.Unsupported())
	}
}

// sendingScript is middleware that sends.
const sendingScript = "def after(response, context):\n    send_connector(\"crm\", {\"payload\": 1})\n    return response\n"

// A link in the mode middleware needs a script that sends: of the agent, of a variant's step, or of a library.
func TestParse_RequiresMiddlewareOfLinks(t *testing.T) {
	t.Parallel()
	const quiet = "def after(response, context):\n    return response\n"
	link := []string{"connectors/crm.yaml", outboundConnector + "links: [{agent: flow, outbound: {mode: middleware}}]\n", "agents/ok.yaml", okAgent,
		"agents/flow.yaml", "name: flow\ntype: sequential\nagents: [ok]\n"}
	const missing = `connectors/crm.yaml:4:1: "outbound.mode": no middleware of agent "flow" calls send_connector; write the call in middleware/flow.star, or choose another mode`
	for name, c := range map[string]struct {
		files []string
		want  string
	}{
		"no script":                   {nil, missing},
		"a script that does not send": {[]string{"middleware/flow.star", quiet}, missing},
		"a sending script":            {[]string{"middleware/flow.star", sendingScript}, ""},
		"a sending script of a step":  {[]string{"middleware/ok.star", sendingScript}, ""},
		"a library function that sends": {[]string{"middleware/lib/out.star", "def tell():\n    send_connector(\"crm\", {\"payload\": 1})\n",
			"middleware/flow.star", "load(\"//middleware/lib/out.star\", \"tell\")\n\ndef after(response, context):\n    tell()\n    return response\n"}, ""},
		"a sending script of another agent": {[]string{"agents/other.yaml", "name: other\nmodel: openai/x\n", "middleware/other.star", sendingScript}, missing},
		"a sending script of a variant's step": {[]string{"agents/other.yaml", "name: other\nmodel: openai/x\n", "middleware/other.star", sendingScript,
			"agents/flow.yaml", "name: flow\ntype: sequential\nagents: [ok]\nvariants: {b: 10}\n",
			"agents/flow-test-b.yaml", "name: flow-test-b\ntype: sequential\nagents: [other]\n"}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			p, err := bundle.Parse(newFiles(slices.Concat(link, c.files)...))
			if c.want != "" {
				require.ErrorContains(t, err, c.want)
				return
			}
			require.NoError(t, err)
			require.True(t, p.SendsByMiddleware("flow"))
		})
	}
	_, err := bundle.Parse(newFiles(append([]string{"middleware/flow.star", "def after(:\n"}, link...)...))
	require.ErrorContains(t, err, "middleware/flow.star:1")
	require.NotContains(t, err.Error(), "outbound.mode", "the script has its own problem")
}

func TestParse_ReportsOutboundProblems(t *testing.T) {
	t.Parallel()
	many := []string{"agents/ok.yaml", okAgent}
	for i := range connector.MaxLinks + 1 {
		many = append(many, fmt.Sprintf("connectors/c%02d.yaml", i), outboundConnector+"agents: [ok]\n")
	}
	for name, c := range map[string]struct {
		files []string
		want  string
	}{
		"an open brace in the URL": {
			[]string{"connectors/a.yaml", "type: webhook\nmode: outbound\nconfig: {url: 'https://a/${'}\n"},
			`connectors/a.yaml:3:10: "url" has ${ that is not followed by a variable name`,
		},
		"an open brace in a header": {
			[]string{"connectors/a.yaml", "type: webhook\nmode: outbound\nconfig: {url: 'https://a', headers: {X-A: 'CANARY${'}}\n"},
			`connectors/a.yaml:3:28: "headers" has ${ that is not followed by a variable name and }; write $${ for a literal ${, in the value of "X-A"`,
		},
		"a variable in a name": {
			[]string{"connectors/a.yaml", "type: webhook\nmode: outbound\nconfig: {url: 'https://a', headers: {'${A}': b}}\n"},
			`"headers" has "${A}", which is not the name of a header`,
		},
		"an unknown source connector":             {[]string{"connectors/a.yaml", outboundConnector + "links: [{agent: ok, outbound: {source_connectors: [ask]}}]\n"}, `connectors/a.yaml:4:1: "outbound.source_connectors": no inbound, sync or cron connector has the file connectors/ask.yaml`},
		"an outbound source connector":            {[]string{"connectors/a.yaml", outboundConnector + "links: [{agent: ok, outbound: {source_connectors: [a]}}]\n"}, `"outbound.source_connectors": no inbound, sync or cron connector has the file connectors/a.yaml`},
		"an unknown status":                       {[]string{"connectors/a.yaml", outboundConnector + "links: [{agent: ok, outbound: {statuses: [done]}}]\n"}, `connectors/a.yaml:4:43: "links[0].outbound.statuses[0]" must be one of completed, failed, cancelled, delivery_failed`},
		"a tool name without the mode agent_tool": {[]string{"connectors/a.yaml", outboundConnector + "links: [{agent: ok, outbound: {action_name: tell}}]\n"}, `"outbound.action_name" is for the mode agent_tool`},
		"files_required of an outbound connector": {[]string{"connectors/a.yaml", outboundConnector + "links: [{agent: ok, files_required: true}]\n"}, `"files_required" is for links of inbound, sync and cron connectors`},
		"an outbound policy of a sync connector":  {[]string{"connectors/a.yaml", "type: webhook\nmode: sync\nlinks: [{agent: ok, outbound: {}}]\n"}, `"outbound" is for links of outbound connectors`},
		"two connectors with one tool name": {
			[]string{"connectors/a.yaml", outboundConnector + "name: B\nlinks: [{agent: ok, outbound: {mode: agent_tool}}]\n", "connectors/b.yaml", outboundConnector + "links: [{agent: ok, outbound: {mode: agent_tool}}]\n"},
			`connectors/b.yaml:4:1: connectors/a.yaml gives agent "ok" the tool "send_to_b" already`,
		},
		"a tool for an agent of type tool": {
			[]string{"agents/call.yaml", "name: call\ntype: tool\ntool_name: current_time\n", "connectors/a.yaml", outboundConnector + "links:\n  - agent: ok\n  - {agent: call, outbound: {mode: agent_tool}}\n"},
			`connectors/a.yaml:6:36: "links[1].outbound.mode": agent "call" runs no agent with a model, so nothing calls the tool; use automatic, or link another agent`,
		},
		"a tool for a pipeline without a model": {
			[]string{"agents/call.yaml", "name: call\ntype: tool\ntool_name: current_time\n", "agents/flow.yaml", "name: flow\ntype: sequential\nagents: [call]\n",
				"connectors/a.yaml", outboundConnector + "links: [{agent: flow, outbound: {mode: agent_tool}}]\n"},
			`connectors/a.yaml:4:40: "links[0].outbound.mode": agent "flow" runs no agent with a model`,
		},
		"too many": {many[2:], `connectors/c32.yaml:1:1: agent "ok" is linked to more than 32 outbound connectors`},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := bundle.Parse(newFiles(append([]string{"agents/ok.yaml", okAgent}, c.files...)...))
			require.ErrorContains(t, err, c.want)
			require.NotContains(t, err.Error(), "CANARY")
		})
	}
}

func TestParse_RejectsInvalidHeaders(t *testing.T) {
	t.Parallel()
	_, err := bundle.Parse(newFiles("agents/ok.yaml", okAgent, "connectors/out.yaml", `type: webhook
mode: outbound
config:
  url: https://x.example.com
  headers: {X-Fine: "a\tb é", X-Break: "CANARY\r\nX-Service-Signature: forged", "X Space": a}
`))
	require.Error(t, err)
	require.Contains(t, err.Error(), `connectors/out.yaml:5:3: "headers" has a control character, such as a line break, in the value of "X-Break": remove it`)
	require.Contains(t, err.Error(), `"headers" has "X Space", which is not the name of a header`)
	require.NotContains(t, err.Error(), "X-Fine")
	require.NotContains(t, err.Error(), "CANARY")
}

// A link may give a tool to an agent if one of its steps, or an A/B variant, has a model.
func TestParse_AcceptsToolForAgentsWithModel(t *testing.T) {
	t.Parallel()
	const call = "name: call\ntype: tool\ntool_name: current_time\n"
	for name, files := range map[string][]string{
		"step":    {"agents/flow.yaml", "name: flow\ntype: sequential\nagents: [call, ok]\n", "agents/call.yaml", call},
		"variant": {"agents/flow.yaml", "name: flow\ntype: tool\ntool_name: current_time\nvariants: {asks: 50}\n", "agents/flow-test-asks.yaml", "name: asks\ntype: llm\nmodel: openai/x\n"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := bundle.Parse(newFiles(append(files, "agents/ok.yaml", okAgent,
				"connectors/a.yaml", outboundConnector+"links: [{agent: flow, outbound: {mode: agent_tool}}]\n")...))
			require.NoError(t, err)
		})
	}
}
