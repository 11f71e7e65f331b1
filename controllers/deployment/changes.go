// SPDX-License-Identifier: Apache-2.0

package deployment

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/equality"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
	"github.com/agentplatform/agentplatform/bundle"
	"github.com/agentplatform/agentplatform/controllers/projection"
	"github.com/agentplatform/agentplatform/internal/cron"
	"github.com/agentplatform/agentplatform/internal/seal"
	"github.com/agentplatform/agentplatform/store"
)

// What an activation does with a connector, as the REST API says it.
const (
	actionCreated   = "created"
	actionUpdated   = "updated"
	actionUnchanged = "unchanged"
	actionRetired   = "retired"
	// actionSkipped: it stays as it is, although the code says something else.
	actionSkipped = "skipped"
	actionFailed  = "failed"
)

const (
	// maxChangeError is the most bytes of what is said of one connector.
	maxChangeError = 1000
	// notApplied is said of connectors that could have been.
	notApplied = "not applied, for another connector cannot be"
)

// situation is what connectors of code meet in their environment.
type situation struct {
	namespace   string
	environment v1alpha1.EnvironmentName
	// agents are those of the deployment.
	agents []string
	// connectors are those of the environment by name, and links those of the namespace by the
	// name of their connector; whoever made them.
	connectors map[string]*v1alpha1.Connector
	links      map[string][]*v1alpha1.ConnectorLink
	// rows are those that the store has of the code, retired ones too, by the names of their
	// objects, whether these are there or not: on them an activation acts.
	rows map[string]store.Connector
	// refused are those that the store has refused, by name with the reason.
	refused   map[string]string
	variables projection.Variables
}

// change is what an activation would do with one connector.
type change struct {
	key, action string
	// problem says to a person why it failed; else it is "".
	problem string
	// mirror is what the code says, and expanded its connector with the values of variables;
	// nil where it failed or is to be retired. The credentials are what is sealed of it.
	mirror      *projection.Mirror
	expanded    *v1alpha1.Connector
	credentials seal.Credentials
}

// changes are those that a deployment with these files would make, by key.
func (s situation) changes(files []store.ConnectorFile) []change {
	out := make([]change, 0, len(files))
	named, links := map[string]bool{}, 0
	for _, file := range files {
		c := s.change(file)
		if c.mirror != nil {
			if links += len(c.mirror.Links); links > bundle.MaxAllLinks {
				c = change{key: file.Key, action: actionFailed, problem: fmt.Sprintf("with it the connectors have more than %d links together", bundle.MaxAllLinks)}
			}
		}
		out = append(out, c)
		named[v1alpha1.CodeConnectorName(s.environment, file.Key)] = true
	}
	s.failTaken(out)
	for name, row := range s.rows {
		if !named[name] && !row.Retired {
			out = append(out, change{key: v1alpha1.CodeConnectorStem(s.environment, name), action: actionRetired})
		}
	}
	slices.SortFunc(out, func(a, b change) int { return strings.Compare(a.key, b.key) })
	return out
}

// change is what would become of one file, but for what others have or do not have.
func (s situation) change(file store.ConnectorFile) change {
	failed := func(format string, args ...any) change {
		return change{key: file.Key, action: actionFailed, problem: store.Cut(fmt.Sprintf(format, args...), maxChangeError)}
	}
	parsed, err := projection.Parsed(file, s.agents)
	if err != nil {
		return failed("%v", err)
	}
	if problems := parsed.Unsupported(); len(problems) > 0 {
		return failed("%v", problems)
	}
	mirror, err := projection.MirrorOf(s.namespace, s.environment, parsed)
	if err != nil {
		return failed("%v", err)
	}
	existing := s.connectors[mirror.Connector.Name]
	if problem := s.inTheWay(&mirror, existing); problem != "" {
		return failed("%s", problem)
	}
	mirror.Onto(existing, 0)
	expanded, err := projection.Expanded(mirror.Connector, s.variables)
	if err != nil {
		return failed("%v", err)
	}
	if expanded.Spec.Cron != nil {
		config := projection.CronConfig(expanded)
		if wrong := cron.Check(config.Schedule, config.TimeZone, config.Prompt, config.Payload); len(wrong) > 0 {
			return failed("%q %s", wrong[0].Field, wrong[0].Problem)
		}
	}
	credentials, err := projection.Credentials(mirror.Connector, s.variables)
	if err != nil {
		return failed("%v", err)
	}
	return change{key: file.Key, action: s.action(&mirror, existing), mirror: &mirror, expanded: expanded, credentials: credentials}
}

// inTheWay says what keeps a connector of the code from what is there already.
func (s situation) inTheWay(m *projection.Mirror, existing *v1alpha1.Connector) string {
	name := m.Connector.Name
	if problem := s.refused[name]; problem != "" {
		return problem
	}
	is := kindOf(m.Connector.Spec.Mode.Word(), m.Connector.Type())
	was := is
	if existing != nil {
		if !projection.IsOurs(existing, s.environment) {
			return fmt.Sprintf("Connector %q is there, and the platform has not made it: delete it, or rename the file", name)
		}
		was = kindOf(existing.Spec.Mode.Word(), existing.Type())
	}
	if row, brought := s.rows[name]; brought {
		was = kindOf(row.Mode, v1alpha1.ConnectorType(row.Type))
	}
	if was != is {
		return fmt.Sprintf("it was %s and would be %s: type and mode of a connector never change, for callers rely on them; rename the file", was, is)
	}
	return s.linksInTheWay(m)
}

// kindOf is what a connector is to its callers.
func kindOf(mode string, of v1alpha1.ConnectorType) string { return mode + " " + string(of) }

// linksInTheWay says which links of others keep the mirror from having its own.
func (s situation) linksInTheWay(m *projection.Mirror) string {
	mirrored := map[string]bool{}
	agents := map[v1alpha1.AgentName]bool{}
	for _, link := range m.Links {
		mirrored[link.Name], agents[link.Spec.Agent] = true, true
	}
	others := 0
	for _, link := range s.links[m.Connector.Name] {
		switch ours := projection.IsOurs(link, s.environment); {
		case ours:
			continue
		case mirrored[link.Name]:
			return fmt.Sprintf("ConnectorLink %q is there, and the platform has not made it: delete it", link.Name)
		case agents[link.Spec.Agent]:
			return fmt.Sprintf("ConnectorLink %q links agent %q to it already: delete it, or take the agent out of the file", link.Name, link.Spec.Agent)
		}
		others++
	}
	if others+len(m.Links) > store.MaxLinks {
		return fmt.Sprintf("it would have %d links, with those that the platform has not made; at most %d are allowed", others+len(m.Links), store.MaxLinks)
	}
	return ""
}

// action is what is done with a connector of the code.
func (s situation) action(m *projection.Mirror, existing *v1alpha1.Connector) string {
	row, brought := s.rows[m.Connector.Name]
	switch {
	case !brought || row.Retired:
		return actionCreated
	case existing != nil && !existing.Retired() && projection.SameConnector(existing, m.Connector) && s.sameLinks(m):
		return actionUnchanged
	}
	return actionUpdated
}

// sameLinks says whether the links that mirror code are those that it has.
func (s situation) sameLinks(m *projection.Mirror) bool {
	there := map[string]*v1alpha1.ConnectorLink{}
	for _, link := range s.links[m.Connector.Name] {
		if projection.IsOurs(link, s.environment) {
			there[link.Name] = link
		}
	}
	if len(there) != len(m.Links) {
		return false
	}
	return !slices.ContainsFunc(m.Links, func(l *v1alpha1.ConnectorLink) bool {
		other := there[l.Name]
		return other == nil || !equality.Semantic.DeepEqual(other.Spec, l.Spec) ||
			other.Labels[v1alpha1.LabelPosition] != l.Labels[v1alpha1.LabelPosition]
	})
}

// failTaken fails what would be called like another connector of the environment: of the code,
// of somebody's, or one that fails and stays as it is; what would send as another one does; and
// what would send the results of one that is not there. One that fails may be in the way of one
// that did not, so that it is looked again until no more fail.
func (s situation) failTaken(changes []change) {
	for {
		holders, sends, failed := s.nameHolders(changes), s.sends(changes), false
		for i := range changes {
			c := &changes[i]
			if c.mirror == nil {
				continue
			}
			problem := sends.problem(c.mirror)
			if holder := holderOf(c.mirror.Connector, holders); holder.object != c.mirror.Connector.Name {
				problem = fmt.Sprintf("the name %q is that of %s in the same environment: choose another name", c.mirror.Connector.Title(), holder.words)
			}
			if problem != "" {
				*c, failed = change{key: c.key, action: actionFailed, problem: problem}, true
			}
		}
		if !failed {
			return
		}
	}
}

// nameHolder is a connector that has a name for people.
type nameHolder struct {
	store.ConnectorName
	// object is the name of its object, words what messages call it.
	object, words string
}

// nameHolders are those of the environment, the first of two that clash being the one that has the name.
func (s situation) nameHolders(changes []change) (holders []nameHolder) {
	for _, name := range slices.Sorted(maps.Keys(s.connectors)) {
		c := s.connectors[name]
		waits := v1alpha1.IsStalled(c) && c.Status.Condition(v1alpha1.ConditionStalled).Reason == v1alpha1.ReasonNameTaken
		if !projection.IsOurs(c, s.environment) && !waits {
			holders = append(holders, nameHolder{store.ConnectorName{Name: c.Title()}, name, fmt.Sprintf("Connector %q", name)})
		}
	}
	inCode := func(title, key string, retired bool) {
		holders = append(holders, nameHolder{
			store.ConnectorName{Name: title, DefinedInCode: true, Retired: retired}, v1alpha1.CodeConnectorName(s.environment, key), v1alpha1.CodeConnectorFile(key),
		})
	}
	for _, c := range changes {
		if row, brought := s.rows[v1alpha1.CodeConnectorName(s.environment, c.key)]; c.mirror == nil && brought {
			inCode(row.Name, c.key, row.Retired)
		}
	}
	for _, c := range changes {
		if c.mirror != nil {
			inCode(c.mirror.Connector.Title(), c.key, false)
		}
	}
	return holders
}

// holderOf is whose the name of a connector of the code is.
func holderOf(c *v1alpha1.Connector, holders []nameHolder) nameHolder {
	name := store.ConnectorName{Name: c.Title(), DefinedInCode: true}
	return holders[slices.IndexFunc(holders, func(h nameHolder) bool { return name.ClashesWith(h.ConnectorName) })] // itself, if no other
}

// failures are the connectors that cannot be applied, with what is wrong, one a line; "" where
// all can.
func failures(changes []change) string {
	var lines []string
	for _, c := range changes {
		if c.action == actionFailed {
			lines = append(lines, "connector "+c.key+": "+c.problem)
		}
	}
	return strings.Join(lines, "\n")
}

// connectorResult is what was done with a connector, in the shape of the REST API.
type connectorResult struct {
	Connector string  `json:"connector"`
	Action    string  `json:"action"`
	Error     *string `json:"error"`
}

// results are what was done with connectors, in the shape of the REST API; nil without any.
// Where applied is false nothing was done.
func results(changes []change, applied bool) (json.RawMessage, error) {
	if len(changes) == 0 {
		return nil, nil
	}
	list := make([]connectorResult, 0, len(changes))
	for _, c := range changes {
		r := connectorResult{Connector: c.key, Action: c.action}
		switch failed := c.action == actionFailed; {
		case failed && applied:
			r.Action, r.Error = actionSkipped, &c.problem
		case failed:
			r.Error = &c.problem
		case !applied:
			problem := notApplied
			r.Action, r.Error = actionSkipped, &problem
		}
		list = append(list, r)
	}
	return json.Marshal(list)
}
