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
	"github.com/agentplatform/agentplatform/connector/crd"
	"github.com/agentplatform/agentplatform/controllers/projection"
	"github.com/agentplatform/agentplatform/internal/secrets"
	"github.com/agentplatform/agentplatform/store"
)

// The actions of an activation on a connector, with the values of the REST API.
const (
	actionCreated   = "created"
	actionUpdated   = "updated"
	actionUnchanged = "unchanged"
	actionRetired   = "retired"
	// actionSkipped: the connector stays unchanged although the code differs.
	actionSkipped = "skipped"
	actionFailed  = "failed"
)

const (
	// maxChangeError is the size limit of a connector's error in bytes.
	maxChangeError = 1000
	// notApplied is the message for connectors that have no problem themselves.
	notApplied = "not applied, because another connector failed"
)

// activationState is the state of an environment that the connectors of a deployment's code meet.
type activationState struct {
	namespace   string
	environment v1alpha1.EnvironmentName
	// agents are the agents of the deployment.
	agents []string
	// connectors has the environment's connectors by name. links has the namespace's links by the name
	// of their connector. Both include objects of users and of the platform.
	connectors map[string]*v1alpha1.Connector
	links      map[string][]*v1alpha1.ConnectorLink
	// rows has the store's connectors from code, including retired ones, by the names of their objects,
	// whether or not the objects exist. An activation changes these rows.
	rows map[string]store.Connector
	// refused has the reasons of connectors that the store has rejected, by name.
	refused   map[string]string
	variables projection.Variables
}

// change is the effect of an activation on one connector.
type change struct {
	key, action string
	// problem is the reason of a failure for users, or "".
	problem string
	// mirror is the connector as the code defines it. expanded has the values of variables in its
	// connector. Both are nil if the change failed or retires the connector. credentials are the values
	// to seal.
	mirror      *projection.Mirror
	expanded    *v1alpha1.Connector
	credentials secrets.Credentials
}

// changes returns the changes of a deployment with these files, sorted by key.
func (s activationState) changes(files []store.ConnectorFile) []change {
	out := make([]change, 0, len(files))
	named, links := map[string]bool{}, 0
	for _, file := range files {
		c := s.changeOf(file)
		if c.mirror != nil {
			if links += len(c.mirror.Links); links > bundle.MaxAllLinks {
				c = change{key: file.Key, action: actionFailed, problem: fmt.Sprintf("with it, all connectors together would have more than %d links", bundle.MaxAllLinks)}
			}
		}
		out = append(out, c)
		named[v1alpha1.CodeConnectorName(s.environment, file.Key)] = true
	}
	s.failConflicts(out)
	for name, row := range s.rows {
		if !named[name] && !row.Retired {
			out = append(out, change{key: v1alpha1.CodeConnectorStem(s.environment, name), action: actionRetired})
		}
	}
	slices.SortFunc(out, func(a, b change) int { return strings.Compare(a.key, b.key) })
	return out
}

// changeOf returns the change for one file, without conflicts with other changes.
func (s activationState) changeOf(file store.ConnectorFile) change {
	failed := func(format string, args ...any) change {
		return change{key: file.Key, action: actionFailed, problem: store.Cut(fmt.Sprintf(format, args...), maxChangeError)}
	}
	parsed, err := projection.ParseFile(file, s.agents)
	if err != nil {
		return failed("%v", err)
	}
	if problems := parsed.Unsupported(); len(problems) > 0 {
		return failed("%v", problems)
	}
	mirror := projection.MirrorOf(s.namespace, s.environment, parsed)
	existing := s.connectors[mirror.Connector.Name]
	if problem := s.conflict(&mirror, existing); problem != "" {
		return failed("%s", problem)
	}
	mirror.SetActivation(existing, 0)
	expanded, err := projection.ExpandTexts(mirror.Connector, s.variables)
	if err != nil {
		return failed("%v", err)
	}
	if kind := crd.KindOf(expanded); kind.StartsRuns() {
		if wrong := kind.Check(crd.ConfigOf(expanded)); len(wrong) > 0 {
			return failed("%q %s", wrong[0].Field, wrong[0].Problem)
		}
	}
	credentials, err := projection.Credentials(mirror.Connector, s.variables)
	if err != nil {
		return failed("%v", err)
	}
	return change{key: file.Key, action: s.actionFor(&mirror, existing), mirror: &mirror, expanded: expanded, credentials: credentials}
}

// conflict returns the conflict of a connector of the code with existing objects, or "".
func (s activationState) conflict(m *projection.Mirror, existing *v1alpha1.Connector) string {
	name := m.Connector.Name
	if problem := s.refused[name]; problem != "" {
		return problem
	}
	is := connectorKind(m.Connector.Spec.Mode.EnumValue(), m.Connector.Type())
	was := is
	if existing != nil {
		if !projection.IsMirror(existing, s.environment) {
			return fmt.Sprintf("Connector %q exists and was not created by the platform; delete it, or rename the file", name)
		}
		was = connectorKind(existing.Spec.Mode.EnumValue(), existing.Type())
	}
	if row, exists := s.rows[name]; exists {
		was = connectorKind(row.Mode, v1alpha1.ConnectorType(row.Type))
	}
	if was != is {
		return fmt.Sprintf("type and mode of a connector cannot change from %s to %s, because callers rely on them; rename the file", was, is)
	}
	return s.linkConflict(m)
}

// connectorKind returns the mode and type of a connector, which its callers depend on.
func connectorKind(mode string, of v1alpha1.ConnectorType) string { return mode + " " + string(of) }

// linkConflict returns the links of other owners that conflict with the links of the mirror.
func (s activationState) linkConflict(m *projection.Mirror) string {
	mirrored := map[string]bool{}
	agents := map[v1alpha1.AgentName]bool{}
	for _, link := range m.Links {
		mirrored[link.Name], agents[link.Spec.Agent] = true, true
	}
	others := 0
	for _, link := range s.links[m.Connector.Name] {
		switch ours := projection.IsMirror(link, s.environment); {
		case ours:
			continue
		case mirrored[link.Name]:
			return fmt.Sprintf("ConnectorLink %q exists and was not created by the platform; delete it", link.Name)
		case agents[link.Spec.Agent]:
			return fmt.Sprintf("ConnectorLink %q already links agent %q to it; delete the link, or remove the agent from the file", link.Name, link.Spec.Agent)
		}
		others++
	}
	if others+len(m.Links) > store.MaxLinks {
		return fmt.Sprintf("it would have %d links, including links that the platform did not create; the limit is %d", others+len(m.Links), store.MaxLinks)
	}
	return ""
}

// actionFor returns the action for a connector of the code.
func (s activationState) actionFor(m *projection.Mirror, existing *v1alpha1.Connector) string {
	row, exists := s.rows[m.Connector.Name]
	switch {
	case !exists || row.Retired:
		return actionCreated
	case existing != nil && !existing.Retired() && projection.SameConnector(existing, m.Connector) && s.sameLinks(m):
		return actionUnchanged
	}
	return actionUpdated
}

// sameLinks reports whether the existing links of the connector equal the links of the mirror.
func (s activationState) sameLinks(m *projection.Mirror) bool {
	there := map[string]*v1alpha1.ConnectorLink{}
	for _, link := range s.links[m.Connector.Name] {
		if projection.IsMirror(link, s.environment) {
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

// failConflicts fails changes that conflict with other connectors of the environment: with the same name, or
// with the same tool name. It also fails changes that send results of a connector that does not exist. A
// failed change keeps an existing connector and may conflict with another change, so failConflicts repeats
// until no more changes fail.
func (s activationState) failConflicts(changes []change) {
	for {
		holders, sends, failed := s.nameHolders(changes), s.outboundToolsAfter(changes), false
		for i := range changes {
			c := &changes[i]
			if c.mirror == nil {
				continue
			}
			problem := sends.problem(c.mirror)
			if holder := holderOf(c.mirror.Connector, holders); holder.object != c.mirror.Connector.Name {
				problem = fmt.Sprintf("the name %q belongs to %s in the same environment; choose another name", c.mirror.Connector.Title(), holder.description)
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

// nameHolder is a connector with its display name.
type nameHolder struct {
	store.ConnectorName
	// object is the name of its object. words is its description in messages.
	object, description string
}

// nameHolders returns the display names of the environment. If two connectors clash, the first one
// holds the name.
func (s activationState) nameHolders(changes []change) (holders []nameHolder) {
	for _, name := range slices.Sorted(maps.Keys(s.connectors)) {
		c := s.connectors[name]
		waits := v1alpha1.IsStalled(c) && c.Status.Condition(v1alpha1.ConditionStalled).Reason == v1alpha1.ReasonNameTaken
		if !projection.IsMirror(c, s.environment) && !waits {
			holders = append(holders, nameHolder{store.ConnectorName{Name: c.Title()}, name, fmt.Sprintf("Connector %q", name)})
		}
	}
	inCode := func(title, key string, retired bool) {
		holders = append(holders, nameHolder{
			store.ConnectorName{Name: title, DefinedInCode: true, Retired: retired}, v1alpha1.CodeConnectorName(s.environment, key), v1alpha1.CodeConnectorFile(key),
		})
	}
	for _, c := range changes {
		if row, exists := s.rows[v1alpha1.CodeConnectorName(s.environment, c.key)]; c.mirror == nil && exists {
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

// holderOf returns the holder of the display name of a connector of the code.
func holderOf(c *v1alpha1.Connector, holders []nameHolder) nameHolder {
	name := store.ConnectorName{Name: c.Title(), DefinedInCode: true}
	return holders[slices.IndexFunc(holders, func(h nameHolder) bool { return name.ClashesWith(h.ConnectorName) })] // the connector itself if no other
}

// failures returns the connectors that cannot be applied with their problems, one per line, or "".
func failures(changes []change) string {
	var lines []string
	for _, c := range changes {
		if c.action == actionFailed {
			lines = append(lines, "connector "+c.key+": "+c.problem)
		}
	}
	return strings.Join(lines, "\n")
}

// connectorResult is the result of a change, in the format of the REST API.
type connectorResult struct {
	Connector string  `json:"connector"`
	Action    string  `json:"action"`
	Error     *string `json:"error"`
}

// results returns the results of changes in the format of the REST API, or nil if there are none.
// applied is false if the activation did not happen.
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
