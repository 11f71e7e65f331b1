// SPDX-License-Identifier: Apache-2.0

package deployment

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
	"github.com/agentplatform/agentplatform/bundle"
	"github.com/agentplatform/agentplatform/controllers/projection"
	"github.com/agentplatform/agentplatform/internal/runnerconfig"
	"github.com/agentplatform/agentplatform/store"
)

const askFile = "type: webhook\nmode: sync\nagents: [hello]\n"

// mirrorOf returns the existing mirror of a file in "dev".
func mirrorOf(t *testing.T, key, content string) projection.Mirror {
	t.Helper()
	c, err := bundle.ParseConnector(key, []byte(content), []string{"hello"})
	require.NoError(t, err)
	m := projection.MirrorOf("team", "dev", c)
	m.SetActivation(nil, 7)
	return m
}

// inDev returns an environment with these mirrors.
func inDev(mirrors ...projection.Mirror) activationState {
	s := activationState{
		namespace: "team", environment: "dev", agents: []string{"hello"},
		connectors: map[string]*v1alpha1.Connector{}, links: map[string][]*v1alpha1.ConnectorLink{}, rows: map[string]store.Connector{},
	}
	for _, m := range mirrors {
		c := m.Connector
		s.rows[c.Name] = store.Connector{Name: c.Title(), Type: string(c.Type()), Mode: c.Spec.Mode.EnumValue(), Retired: c.Retired()}
		s.connectors[m.Connector.Name] = m.Connector
		s.links[m.Connector.Name] = m.Links
	}
	return s
}

func (s activationState) with(connectors ...*v1alpha1.Connector) activationState {
	for _, c := range connectors {
		s.connectors[c.Name] = c
	}
	return s
}

func someConnector(name string, change func(*v1alpha1.Connector)) *v1alpha1.Connector {
	c := &v1alpha1.Connector{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: name}, Spec: v1alpha1.ConnectorSpec{
		Environment: "dev", Mode: v1alpha1.ModeInbound, Webhook: &v1alpha1.WebhookConnector{},
	}}
	change(c)
	return c
}

// said returns a summary of the changes.
func said(changes []change) (out []string) {
	for _, c := range changes {
		text := c.key + " " + c.action
		if c.problem != "" {
			text += ": " + c.problem
		}
		out = append(out, text)
	}
	return out
}

// askOf returns the file of the connector "ask", and cronOf the file of a schedule.
func askOf(content string) store.ConnectorFile {
	return store.ConnectorFile{Key: "ask", Content: content}
}

func cronOf(schedule string) store.ConnectorFile {
	return askOf("type: cron\nconfig: {schedule: '" + schedule + "'}\n")
}

// changed is a situation with files and the expected changes.
type changed struct {
	in    activationState
	files []store.ConnectorFile
	want  []string
}

func tryChanges(t *testing.T, cases map[string]changed) {
	t.Helper()
	for name, c := range cases {
		require.Equal(t, c.want, said(c.in.changes(c.files)), name)
	}
}

func TestChanges_HaveActions(t *testing.T) {
	t.Parallel()
	retired := mirrorOf(t, "ask", askFile)
	retired.Connector.Labels[v1alpha1.LabelRetired] = "true"
	disabled := mirrorOf(t, "ask", askFile)
	disabled.Connector.Spec.Enabled = ptr.To(false)
	rotated := mirrorOf(t, "ask", askFile)
	rotated.Connector.Spec.SecretVersion = 3
	unlinked := mirrorOf(t, "ask", askFile)
	unlinked.Links = nil
	stalled := someConnector("late", func(c *v1alpha1.Connector) { c.Spec.DisplayName = "Ask"; c.MarkNameTaken("x") })
	tryChanges(t, map[string]changed{
		"nothing":                                    {inDev(), nil, nil},
		"new":                                        {inDev(), []store.ConnectorFile{askOf(askFile)}, []string{"ask created"}},
		"an unchanged connector":                     {inDev(mirrorOf(t, "ask", askFile)), []store.ConnectorFile{askOf(askFile)}, []string{"ask unchanged"}},
		"another timeout":                            {inDev(mirrorOf(t, "ask", askFile)), []store.ConnectorFile{askOf(askFile + "config: {timeout_seconds: 5}\n")}, []string{"ask updated"}},
		"a mirror that a user paused":                {inDev(disabled), []store.ConnectorFile{askOf(askFile)}, []string{"ask updated"}},
		"a secret that a user rotated":               {inDev(rotated), []store.ConnectorFile{askOf(askFile)}, []string{"ask unchanged"}},
		"a mirrored link was deleted":                {inDev(unlinked), []store.ConnectorFile{askOf(askFile)}, []string{"ask updated"}},
		"a link that requires files":                 {inDev(mirrorOf(t, "ask", askFile)), []store.ConnectorFile{askOf("type: webhook\nmode: sync\nlinks: [{agent: hello, files_required: true}]\n")}, []string{"ask updated"}},
		"a file was deleted":                         {inDev(mirrorOf(t, "ask", askFile)), nil, []string{"ask retired"}},
		"an already retired connector":               {inDev(retired), nil, nil},
		"a retired connector's file is back":         {inDev(retired), []store.ConnectorFile{askOf(askFile)}, []string{"ask created"}},
		"a user's connector that waits for the name": {inDev(mirrorOf(t, "ask", askFile)).with(stalled), []store.ConnectorFile{askOf(askFile)}, []string{"ask unchanged"}},
	})
}

func TestChanges_FailOnConflicts(t *testing.T) {
	t.Parallel()
	chosen := mirrorOf(t, "ask", askFile)
	chosen.Connector.Spec.ID = "7b0c7a52-6c1f-4c3e-9a55-0f6d1f1f8f10"
	theirs := inDev(mirrorOf(t, "ask", askFile))
	theirs.links["dev.ask"] = append(theirs.links["dev.ask"], &v1alpha1.ConnectorLink{
		ObjectMeta: metav1.ObjectMeta{Name: "mine"}, Spec: v1alpha1.ConnectorLinkSpec{Connector: "dev.ask", Agent: "hello"},
	})
	many := inDev()
	for i := range store.MaxLinks {
		many.links["dev.ask"] = append(many.links["dev.ask"], &v1alpha1.ConnectorLink{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("l", i)},
			Spec: v1alpha1.ConnectorLinkSpec{Connector: "dev.ask", Agent: v1alpha1.AgentName(fmt.Sprint("a", i))}})
	}
	squatted := inDev()
	squatted.links["dev.ask"] = []*v1alpha1.ConnectorLink{{ObjectMeta: metav1.ObjectMeta{Name: "dev.ask.hello"},
		Spec: v1alpha1.ConnectorLinkSpec{Connector: "dev.ask", Agent: "else"}}}
	tryChanges(t, map[string]changed{
		"another mode":     {inDev(mirrorOf(t, "ask", askFile)), []store.ConnectorFile{askOf("type: webhook\nmode: inbound\n")}, []string{"ask failed: type and mode of a connector cannot change from sync webhook to inbound webhook, because callers rely on them; rename the file"}},
		"another type":     {inDev(mirrorOf(t, "ask", askFile)), []store.ConnectorFile{cronOf("@daily")}, []string{"ask failed: type and mode of a connector cannot change from sync webhook to inbound cron, because callers rely on them; rename the file"}},
		"an invalid file":  {inDev(), []store.ConnectorFile{askOf("type: mail")}, []string{`ask failed: connectors/ask.yaml:1:7: "type" must be one of webhook, cron`}},
		"an unknown agent": {inDev(), []store.ConnectorFile{askOf("type: webhook\nmode: sync\nagents: [who]\n")}, []string{`ask failed: connectors/ask.yaml:3:1: no agent is named "who"; write it or correct the name`}},
		"another mode, not mirrored yet": {
			activationState{namespace: "team", environment: "dev", agents: []string{"hello"}, rows: map[string]store.Connector{"dev.ask": {Type: "webhook", Mode: "inbound"}}},
			[]store.ConnectorFile{askOf(askFile)},
			[]string{"ask failed: type and mode of a connector cannot change from inbound webhook to sync webhook, because callers rely on them; rename the file"},
		},
		"a user's object with the mirror's name":   {inDev().with(someConnector("dev.ask", func(*v1alpha1.Connector) {})), []store.ConnectorFile{askOf(askFile)}, []string{`ask failed: Connector "dev.ask" exists and was not created by the platform; delete it, or rename the file`}},
		"a mirror with a user's ID":                {inDev(chosen), []store.ConnectorFile{askOf(askFile)}, []string{`ask failed: Connector "dev.ask" exists and was not created by the platform; delete it, or rename the file`}},
		"a user's connector with the display name": {inDev().with(someConnector("mine", func(c *v1alpha1.Connector) { c.Spec.DisplayName = "Ask" })), []store.ConnectorFile{askOf(askFile)}, []string{`ask failed: the name "ask" belongs to Connector "mine" in the same environment; choose another name`}},
		"a user's link of the agent":               {theirs, []store.ConnectorFile{askOf(askFile)}, []string{`ask failed: ConnectorLink "mine" already links agent "hello" to it; delete the link, or remove the agent from the file`}},
		"a user's link with the mirror's name":     {squatted, []store.ConnectorFile{askOf(askFile)}, []string{`ask failed: ConnectorLink "dev.ask.hello" exists and was not created by the platform; delete it`}},
		"links above the limit":                    {many, []store.ConnectorFile{askOf(askFile)}, []string{"ask failed: it would have 101 links, including links that the platform did not create; the limit is 100"}},
	})
}

func TestChanges_ExpandVariables(t *testing.T) {
	t.Parallel()
	variables := inDev()
	variables.variables.Variables = runnerconfig.Sorted([]runnerconfig.Variable{{Name: "WHEN", Value: "@daily"}, {Name: "BAD", Value: "never"}, {Name: "KEY", Value: "k", Sensitive: true}})
	tryChanges(t, map[string]changed{
		"a variable":          {variables, []store.ConnectorFile{cronOf("${WHEN}")}, []string{"ask created"}},
		"an unknown variable": {variables, []store.ConnectorFile{cronOf("${WHO} ${WHAT}")}, []string{`ask failed: Environment "dev" has no variables WHAT and WHO; set them in its spec.variables, with PUT /environments/{environment_id}/variables, or with ` + "`agentctl env set`"}},
		"a variable with an invalid value": {variables, []store.ConnectorFile{cronOf("${BAD}")},
			[]string{`ask failed: "schedule" must have five fields, such as "0 6 * * 1-5", or be one of @yearly, @annually, @monthly, @weekly, @daily, @midnight and @hourly`}},
		"a secret variable": {variables, []store.ConnectorFile{cronOf("${KEY}")},
			[]string{"ask failed: the variable KEY is sensitive, but the configuration of a cron connector is stored unencrypted and shown to models; use a variable that is not sensitive"}},
	})
}

// A failed change keeps its name, and so may cause other failures.
func TestChanges_FailOnDuplicateNames(t *testing.T) {
	t.Parallel()
	named := func(key, name, mode string) store.ConnectorFile {
		return store.ConnectorFile{Key: key, Content: "type: webhook\nmode: " + mode + "\nname: " + name + "\n"}
	}
	there := inDev(mirrorOf(t, "a", named("a", "One", "sync").Content), mirrorOf(t, "b", named("b", "Two", "sync").Content))
	require.Equal(t, []string{"a updated", "b updated"}, said(there.changes([]store.ConnectorFile{named("a", "Two", "sync"), named("b", "One", "sync")})), "they swap")
	require.Equal(t, []string{"a created", `b failed: the name "Same" belongs to connectors/a.yaml in the same environment; choose another name`},
		said(inDev().changes([]store.ConnectorFile{named("a", "Same", "sync"), named("b", "Same", "sync")})))
	got := said(there.changes([]store.ConnectorFile{named("a", "New", "inbound"), named("b", "One", "sync"), named("c", "Two", "sync")}))
	require.Len(t, got, 3)
	require.True(t, strings.HasPrefix(got[0], "a failed: type and mode of a connector cannot change"), got[0])
	require.Equal(t, `b failed: the name "One" belongs to connectors/a.yaml in the same environment; choose another name`, got[1])
	require.Equal(t, `c failed: the name "Two" belongs to connectors/b.yaml in the same environment; choose another name`, got[2])
}

// The number of links from a build is not trusted.
func TestChanges_BoundLinks(t *testing.T) {
	t.Parallel()
	s := inDev()
	content := "type: webhook\nmode: sync\nagents: [a0"
	for i := range 100 {
		s.agents = append(s.agents, fmt.Sprint("a", i))
		if i > 0 {
			content += fmt.Sprint(", a", i)
		}
	}
	var files []store.ConnectorFile
	for i := range 6 {
		files = append(files, store.ConnectorFile{Key: fmt.Sprint("c", i), Content: content + "]\n"})
	}
	got := said(s.changes(files))
	require.Equal(t, "c4 created", got[4])
	require.Equal(t, "c5 failed: with it, all connectors together would have more than 500 links", got[5])
}

func TestResults_HaveRESTFormat(t *testing.T) {
	t.Parallel()
	changes := []change{{key: "a", action: actionCreated}, {key: "b", action: actionFailed, problem: "no"}}
	applied, err := results(changes, true)
	require.NoError(t, err)
	require.JSONEq(t, `[{"connector":"a","action":"created","error":null},{"connector":"b","action":"skipped","error":"no"}]`, string(applied))
	not, err := results(changes, false)
	require.NoError(t, err)
	require.JSONEq(t, `[{"connector":"a","action":"skipped","error":"not applied, because another connector failed"},{"connector":"b","action":"failed","error":"no"}]`, string(not))
	none, err := results(nil, true)
	require.NoError(t, err)
	require.Nil(t, none)
	require.Equal(t, "connector b: no", failures(changes))
	require.Zero(t, connectorsOf(store.Deployment{}))
	applied, err = results(append(changes, change{key: "c", action: actionRetired}), true)
	require.NoError(t, err)
	require.Equal(t, v1alpha1.AppliedConnectors{Live: true, Applied: 1, Retired: 1, Left: []string{"b: no"}},
		connectorsOf(store.Deployment{ConnectorResults: applied, ActivatedAt: &time.Time{}}))
}

// Errors from a build are shortened.
func TestChanges_BoundErrors(t *testing.T) {
	t.Parallel()
	var files []store.ConnectorFile
	for i := range store.MaxConnectorFiles {
		files = append(files, store.ConnectorFile{Key: fmt.Sprint("c", i), Content: "type: '" + strings.Repeat("x", 60<<10) + "'\n"})
	}
	changes := inDev().changes(files)
	list, err := results(changes, false)
	require.NoError(t, err)
	require.Less(t, len(list), 200<<10)
}

// sendFile returns a file that sends the results of hello, automatically or as a tool.
func sendFile(key, link string) store.ConnectorFile {
	return store.ConnectorFile{Key: key, Content: "type: webhook\nmode: outbound\nconfig: {url: 'https://${HOST}/', headers: {Authorization: '${KEY}'}}\nlinks: [{agent: hello" + link + "}]\n"}
}

const byTell = ", outbound: {mode: agent_tool, action_name: tell}"

// sending returns an environment with the mirrors of these files and their variables.
func sending(t *testing.T, files ...store.ConnectorFile) activationState {
	t.Helper()
	var mirrors []projection.Mirror
	for _, f := range files {
		mirrors = append(mirrors, mirrorOf(t, f.Key, f.Content))
	}
	s := inDev(mirrors...)
	s.variables.Variables = runnerconfig.Sorted([]runnerconfig.Variable{{Name: "HOST", Value: "a.example.com"}, {Name: "KEY", Value: "CANARY", Sensitive: true}})
	return s
}

// tellsToo adds a user's connector with a link that gives hello a tool.
func tellsToo(s activationState, name string, change func(*v1alpha1.ConnectorLink)) activationState {
	c := someConnector(name, func(c *v1alpha1.Connector) { c.Spec.Mode = v1alpha1.ModeOutbound })
	link := &v1alpha1.ConnectorLink{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1alpha1.ConnectorLinkSpec{
		Connector: v1alpha1.ConnectorName(name), Agent: "hello", Outbound: &v1alpha1.OutboundLink{Mode: v1alpha1.LinkAgentTool, ActionName: "tell"},
	}}
	change(link)
	s.links[name] = append(s.links[name], link)
	return s.with(c)
}

func TestChanges_OutboundConnectors(t *testing.T) {
	t.Parallel()
	asIs := func(*v1alpha1.ConnectorLink) {}
	crm := sendFile("crm", byTell)
	tellsAlready := func(of string) string {
		return `crm failed: agent "hello" already has a tool "tell" from Connector "` + of + `"; set another outbound.action_name`
	}
	elsewhere := tellsToo(sending(t), "theirs", asIs)
	elsewhere.connectors["theirs"].Spec.Environment = "prod"
	retired := sending(t, sendFile("old", byTell))
	retired.connectors["dev.old"].Labels[v1alpha1.LabelRetired] = "true"
	retired.rows["dev.old"] = store.Connector{Retired: true}
	lacking := sending(t)
	lacking.variables.Problems = map[string]string{"KEY": `Secret "keys" does not exist`}
	full := sending(t)
	for i := range store.MaxOutboundLinks {
		full = tellsToo(full, fmt.Sprint("c", i), func(l *v1alpha1.ConnectorLink) { l.Spec.Outbound.ActionName = v1alpha1.ActionName(fmt.Sprint("t", i)) })
	}
	from := func(source string) store.ConnectorFile {
		return sendFile("crm", ", outbound: {source_connectors: ["+source+"]}")
	}
	noSource := `crm failed: outbound.source_connectors: no Connector "dev.ask" starts runs; use the file name of a connector in connectors/ without its ending`
	tryChanges(t, map[string]changed{
		"new":                                  {sending(t), []store.ConnectorFile{crm}, []string{"crm created"}},
		"an unchanged connector":               {sending(t, crm), []store.ConnectorFile{crm}, []string{"crm unchanged"}},
		"another tool name":                    {sending(t, crm), []store.ConnectorFile{sendFile("crm", strings.Replace(byTell, "tell", "say", 1))}, []string{"crm updated"}},
		"an unknown variable":                  {inDev(), []store.ConnectorFile{crm}, []string{`crm failed: Environment "dev" has no variables HOST and KEY; set them in its spec.variables, with PUT /environments/{environment_id}/variables, or with ` + "`agentctl env set`"}},
		"a variable without value":             {lacking, []store.ConnectorFile{crm}, []string{`crm failed: the variable KEY has no value: Secret "keys" does not exist`}},
		"middleware":                           {sending(t), []store.ConnectorFile{sendFile("crm", ", outbound: {mode: middleware}")}, []string{"crm created"}},
		"no authentication":                    {sending(t), []store.ConnectorFile{{Key: "crm", Content: "type: webhook\nmode: inbound\nconfig: {authentication: none}\n"}}, []string{"crm failed: connectors/crm.yaml:3:1: a file cannot define a webhook without authentication, because its URL would be the only secret and follows from names; create the connector by the REST API or kubectl"}},
		"a tool name of a user's link":         {tellsToo(sending(t), "theirs", asIs), []store.ConnectorFile{crm}, []string{tellsAlready("theirs")}},
		"a tool name of a user's stalled link": {tellsToo(sending(t), "theirs", func(l *v1alpha1.ConnectorLink) { l.MarkActionTaken("tell", "x") }), []store.ConnectorFile{crm}, []string{"crm created"}},
		"a tool name of a user's link in another environment": {elsewhere, []store.ConnectorFile{crm}, []string{"crm created"}},
		"a tool name of a connector that is being retired":    {sending(t, sendFile("old", byTell)), []store.ConnectorFile{crm}, []string{"crm created", "old retired"}},
		"a tool name of a retired connector":                  {retired, []store.ConnectorFile{crm}, []string{"crm created"}},
		"a tool name of a connector whose change fails":       {sending(t, sendFile("old", byTell)), []store.ConnectorFile{crm, {Key: "old", Content: askFile}}, []string{tellsAlready("dev.old"), "old failed: type and mode of a connector cannot change from outbound webhook to sync webhook, because callers rely on them; rename the file"}},
		"two new connectors with one tool name":               {sending(t), []store.ConnectorFile{crm, sendFile("other", byTell)}, []string{"crm created", `other failed: agent "hello" already has a tool "tell" from Connector "dev.crm"; set another outbound.action_name`}},
		"two connectors that swap tool names": {
			sending(t, crm, sendFile("other", ", outbound: {mode: agent_tool}")),
			[]store.ConnectorFile{sendFile("crm", ", outbound: {mode: agent_tool, action_name: send_to_other}"), sendFile("other", byTell)}, []string{"crm updated", "other updated"},
		},
		"links of an agent above the limit":        {full, []store.ConnectorFile{sendFile("crm", "")}, []string{`crm failed: agent "hello" would have more than 32 links to outbound connectors in the environment; remove it from the file, or delete another link`}},
		"a new source connector":                   {sending(t), []store.ConnectorFile{from("ask"), askOf(askFile)}, []string{"ask created", "crm created"}},
		"an unknown source connector":              {sending(t), []store.ConnectorFile{from("ask")}, []string{noSource}},
		"a source connector that is being retired": {sending(t, askOf(askFile)), []store.ConnectorFile{from("ask")}, []string{"ask retired", noSource}},
		"a new source connector that fails":        {sending(t), []store.ConnectorFile{from("ask"), askOf("type: mail")}, []string{`ask failed: connectors/ask.yaml:1:7: "type" must be one of webhook, cron`, noSource}},
		"an existing source connector that fails":  {sending(t, askOf(askFile)), []store.ConnectorFile{from("ask"), askOf("type: mail")}, []string{`ask failed: connectors/ask.yaml:1:7: "type" must be one of webhook, cron`, "crm created"}},
		"an outbound source connector":             {sending(t), []store.ConnectorFile{from("other"), sendFile("other", "")}, []string{strings.ReplaceAll(noSource, "dev.ask", "dev.other"), "other created"}},
	})
}
