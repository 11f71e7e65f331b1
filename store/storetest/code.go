// SPDX-License-Identifier: Apache-2.0

package storetest

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/agentplatform/agentplatform/store"
)

// codePromises are about a project's code and its connectors.
var codePromises = []promise{
	{"the built folder is the one named at the start of the build", func(w *world) {
		spec := w.newDeployment("one")
		w.Nil(w.beginDeployment(spec).Path)
		w.NoError(w.s.StartBuild(w.ctx, spec.Key(), "services/support"))
		w.NoError(w.s.StartBuild(w.ctx, spec.Key(), "services/sales"), "a building deployment stays")
		begun := w.beginDeployment(spec)
		for _, d := range []store.Deployment{begun, w.deployment(spec.ID)} {
			w.NotNil(d.Path)
			w.Equal("services/support", *d.Path)
		}
		w.NoError(w.s.EndDeployment(w.ctx, spec.Key(), store.DeploymentFailed, store.FailureBuild, ""))
		w.ErrorIs(w.s.StartBuild(w.ctx, spec.Key(), "services/sales"), store.ErrConflict)
		w.Equal("services/support", *w.listDeployments(w.environment.Key())[0].Path)
	}},
	{"the connectors of a build are stored with its deployment", func(w *world) {
		spec := w.beginNew("one")
		w.ErrorIs(errorOf(w.s.ConnectorFiles(w.ctx, w.key(uuid.New()))), store.ErrNotFound)
		w.requireNone(w.s.ConnectorFiles(w.ctx, spec.Key()))
		w.NoError(w.s.StartBuild(w.ctx, spec.Key(), ""))
		result := w.buildResult("content", "first")
		result.Connectors = []store.ConnectorFile{{Key: "orders", Content: "type: webhook\x00 # ü"}, {Key: "nightly", Content: ""}}
		w.NoError(w.s.FinishBuild(w.ctx, spec.Key(), result))
		files, err := w.s.ConnectorFiles(w.ctx, spec.Key())
		w.NoError(err)
		w.Len(files, 2)
		w.Equal("nightly", files[0].Key)
		w.Contains(files[1].Content, "# ü")
	}},
	{"the connectors of a build are limited in number, size and form", func(w *world) {
		spec := w.startBuild(w.newDeployment("one"))
		file := func(key string, size int) store.ConnectorFile {
			return store.ConnectorFile{Key: key, Content: textOf(size)}
		}
		many := make([]store.ConnectorFile, store.MaxConnectorFiles)
		for i := range many {
			many[i] = file(fmt.Sprintf("c%d", i), 1)
		}
		large := make([]store.ConnectorFile, 1+store.MaxConnectorFilesSize/store.MaxConnectorFile)
		for i := range large {
			large[i] = file(fmt.Sprintf("c%d", i), store.MaxConnectorFile)
		}
		for name, c := range map[string]struct {
			files []store.ConnectorFile
			want  error
		}{
			"too many":       {append(many[:len(many):len(many)], file("one-more", 1)), store.ErrTooLarge},
			"too large":      {[]store.ConnectorFile{file("a", store.MaxConnectorFile+1)}, store.ErrTooLarge},
			"large together": {large, store.ErrTooLarge},
			"twice":          {[]store.ConnectorFile{file("a", 1), file("a", 1)}, store.ErrInvalid},
			"a path":         {[]store.ConnectorFile{file("../a", 1)}, store.ErrInvalid},
			"no name":        {[]store.ConnectorFile{file("", 1)}, store.ErrInvalid},
			"a long name":    {[]store.ConnectorFile{file(textOf(41), 1)}, store.ErrInvalid},
		} {
			result := w.buildResult("content", "first")
			result.Connectors = c.files
			w.ErrorIs(w.s.FinishBuild(w.ctx, spec.Key(), result), c.want, name)
		}
		result := w.buildResult("content", "first")
		result.Connectors = many
		w.NoError(w.s.FinishBuild(w.ctx, spec.Key(), result))
	}},
	{"planned connector results are recorded", func(w *world) {
		spec := w.build("one", "first")
		results := json.RawMessage(`[{"connector":"orders","action":"failed","error":"no"}]`)
		w.NoError(w.s.RecordConnectors(w.ctx, spec.Key(), results))
		w.JSONEq(string(results), string(w.deployment(spec.ID).ConnectorResults))
		w.ErrorIs(w.s.RecordConnectors(w.ctx, w.key(uuid.New()), results), store.ErrNotFound)
	}},
	{"connector results are recorded once they are applied", func(w *world) {
		old, late := w.deploy("one", "first"), w.build("two", "first")
		w.activateWith(store.Activation{Deployment: old.Key(), RequestedAt: &origin})
		results := json.RawMessage(`[{"connector":"orders","action":"created","error":null}]`)
		w.activateWith(store.Activation{Deployment: late.Key(), ConnectorResults: results})
		w.Nil(w.deployment(late.ID).ConnectorResults, "it is not live")
		w.activateWith(store.Activation{Deployment: late.Key(), RequestedAt: &origin, ConnectorResults: results})
		w.JSONEq(string(results), string(w.deployment(late.ID).ConnectorResults))
	}},
	{"an activation keeps the named connectors unchanged", func(w *world) {
		kept, gone := w.codeConnector("kept"), w.codeConnector("gone")
		w.activateWith(store.Activation{Deployment: w.build("one", "first").Key(), Connectors: []store.Connector{kept, gone}})
		before := w.readConnector(kept.Key())
		w.activateWith(store.Activation{Deployment: w.build("two", "first").Key(), Kept: []uuid.UUID{kept.ID, uuid.New()}})
		w.Equal(before, w.readConnector(kept.Key()))
		w.True(w.readConnector(gone.Key()).Retired)
	}},
	{"code-defined connectors are listed with their deployment", func(w *world) {
		mine := w.newConnector("mine")
		w.NoError(w.s.PutConnector(w.ctx, mine))
		listed := func() (out []string) {
			rows, err := w.s.CodeConnectors(w.ctx, w.environment.Key())
			w.NoError(err)
			for _, row := range rows {
				d := w.deployment(*row.DeploymentID)
				out = append(out, fmt.Sprint(row.Ref.Name, " of ", d.Ref.Name, " ", row.Retired))
			}
			return out
		}
		w.Empty(listed())
		kept, again, gone := w.codeConnector("kept"), w.codeConnector("again"), w.codeConnector("gone")
		w.activateWith(store.Activation{Deployment: w.build("one", "first").Key(), Connectors: []store.Connector{kept, again, gone}})
		w.Equal([]string{"again of one false", "gone of one false", "kept of one false"}, listed())
		w.activateWith(store.Activation{
			Deployment: w.build("two", "first").Key(), Connectors: []store.Connector{again}, Kept: []uuid.UUID{kept.ID},
		})
		w.Equal([]string{"again of two false", "gone of one true", "kept of one false"}, listed())
		again.Ref.ObjectUID, again.Activation = "uid", w.liveRank()
		w.NoError(w.s.PutConnector(w.ctx, again))
		w.execStatement(`UPDATE connectors SET shadowed = TRUE WHERE project_id = $1 AND id = $2`, kept.ProjectID, kept.ID)
		w.Equal([]string{"again of two false", "gone of one true", "kept of one false"}, listed())
		w.requireNone(w.s.CodeConnectors(w.ctx, w.key(uuid.New())))
	}},
	{"a mirror of an earlier activation is rejected", func(w *world) {
		connector := w.codeConnector("orders")
		link := w.newLink("orders-first", connector.ID, "first", origin)
		link.Ref.ObjectUID = ""
		one := w.build("one", "first")
		w.activateWith(store.Activation{Deployment: one.Key(), Connectors: []store.Connector{connector}, Links: []store.Link{link}})
		mirrored, mirroredLink := connector, link
		mirrored.Ref.ObjectUID, mirroredLink.Ref.ObjectUID = "uid", "uid-of-link"
		mirrored.Activation, mirroredLink.Activation = w.liveRank(), w.liveRank()
		before := w.readConnector(connector.Key())
		w.NoError(w.s.PutConnector(w.ctx, mirrored))
		w.NoError(w.s.PutLink(w.ctx, mirroredLink))
		after := w.readConnector(connector.Key())
		w.Equal(before.Version, after.Version, "the mirror has the values of the activation")
		w.Equal("uid", after.Ref.ObjectUID)

		w.activateWith(store.Activation{Deployment: w.build("two", "first").Key()})
		w.ErrorIs(w.s.PutConnector(w.ctx, mirrored), store.ErrNotLive)
		mirroredLink.FilesRequired = true
		w.ErrorIs(w.s.PutLink(w.ctx, mirroredLink), store.ErrNotLive)
		w.True(w.readConnector(connector.Key()).Retired)

		w.activateWith(store.Activation{Deployment: one.Key(), RequestedAt: &origin, Connectors: []store.Connector{connector}, Links: []store.Link{link}})
		w.ErrorIs(w.s.PutConnector(w.ctx, mirrored), store.ErrNotLive, "the same deployment, another activation")
		mirrored.Activation = w.liveRank()
		w.NoError(w.s.PutConnector(w.ctx, mirrored))
	}},
	{"a live connector stays when its mirror is deleted", func(w *world) {
		connector := w.codeConnector("orders")
		connector.SecretVersion, connector.SecretDigest = 3, []byte("secret three")
		link := w.newLink("orders-first", connector.ID, "first", origin)
		link.Ref.ObjectUID = ""
		w.activateWith(store.Activation{Deployment: w.build("one", "first").Key(), Connectors: []store.Connector{connector}, Links: []store.Link{link}})
		mirrored := connector
		mirrored.Ref.ObjectUID, mirrored.Ref.Generation, mirrored.Activation = "mirror", 7, w.liveRank()
		w.NoError(w.s.PutConnector(w.ctx, mirrored))
		before := w.readRoute(connector.Key())
		stays := func(uid string, generation int64) {
			now := w.readRoute(connector.Key())
			w.Equal(uid, now.Connector.Ref.ObjectUID)
			w.Equal(generation, now.Connector.Ref.Generation)
			now.Connector.Ref = before.Connector.Ref
			w.Equal(before, now)
		}
		for range 2 {
			w.NoError(w.s.Remove(w.ctx, w.project.ID, mirrored.Ref))
			stays("", 0)
		}
		objects := w.listProjected()
		w.False(slices.ContainsFunc(objects, func(o store.ProjectedObject) bool { return o.Key == connector.Key() }), "the object is not deleted")
		other := mirrored
		other.ID, other.Ref.ObjectUID = uuid.New(), "with the same name and another ID"
		w.ErrorAs(w.s.ClaimID(w.ctx, other.Key(), other.Ref), new(*store.IDTakenError))
		stays("", 0)

		again := mirrored
		again.Ref.ObjectUID, again.Ref.Generation = "again", 1
		w.NoError(w.s.PutConnector(w.ctx, again))
		stays("again", 1)
		again.Ref.ObjectUID = "another object, and the deletion of the first was missed"
		w.NoError(w.s.ClaimID(w.ctx, again.Key(), again.Ref))
		stays(again.Ref.ObjectUID, 1)

		w.activateWith(store.Activation{Deployment: w.build("two", "first").Key()})
		w.NoError(w.s.Remove(w.ctx, w.project.ID, again.Ref))
		w.ErrorIs(errorOf(w.s.Connector(w.ctx, connector.Key())), store.ErrNotFound, "a retired one is deleted")
		w.ErrorIs(errorOf(w.s.Holder(w.ctx, connector.Key())), store.ErrNotFound)
	}},
	{"connectors of a deleted environment are deleted with their mirrors", func(w *world) {
		with, without := w.codeConnector("with"), w.codeConnector("without")
		w.activateWith(store.Activation{Deployment: w.build("one", "first").Key(), Connectors: []store.Connector{with, without}})
		with.Ref.ObjectUID, with.Activation = "mirror", w.liveRank()
		w.NoError(w.s.PutConnector(w.ctx, with))
		w.NoError(w.s.Remove(w.ctx, w.project.ID, w.environment.Ref))
		for _, key := range []store.Key{without.Key(), with.Key()} {
			_, err := w.s.Connector(w.ctx, key)
			w.Equal(key == without.Key(), errors.Is(err, store.ErrNotFound))
		}
		left, err := w.s.ConnectorsOf(w.ctx, w.environment.Key())
		w.NoError(err)
		w.Contains(left, with.ID)
		w.NotContains(left, without.ID)
		w.requireNone(w.s.ConnectorsOf(w.ctx, w.key(uuid.Nil)))
		w.ErrorIs(errorOf(w.s.Holder(w.ctx, without.Key())), store.ErrNotFound)
		back := w.environment
		back.Ref.ObjectUID = "back"
		w.NoError(w.s.PutEnvironment(w.ctx, back))
		w.ErrorIs(w.s.PutConnector(w.ctx, with), store.ErrNothingLive)
		w.NoError(w.s.Remove(w.ctx, w.project.ID, with.Ref))
		w.ErrorIs(errorOf(w.s.Connector(w.ctx, with.Key())), store.ErrNotFound)
	}},
	{"a deleted mirrored link can be defined in code again", func(w *world) {
		connector := w.codeConnector("orders")
		link := w.newLink("orders-first", connector.ID, "first", origin)
		w.activateWith(store.Activation{Deployment: w.build("one", "first").Key(), Connectors: []store.Connector{connector}})
		link.Activation = w.liveRank()
		w.NoError(w.s.PutLink(w.ctx, link))
		w.activateWith(store.Activation{Deployment: w.build("two", "first").Key(), Connectors: []store.Connector{connector}})
		w.Empty(w.readRoute(connector.Key()).Links)
	}},
	{"tools follow activations, and their names become free", func(w *world) {
		old, oldLink := w.codeTool("crm", "tell")
		young, youngLink := w.codeTool("crm2", "tell")
		one := w.build("one", "first")
		decided := origin
		activate := func(d store.DeploymentSpec, c store.Connector, l store.Link) {
			decided = decided.Add(time.Second)
			w.activateWith(store.Activation{
				Deployment: d.Key(), RequestedAt: &decided, Connectors: []store.Connector{c}, Links: []store.Link{l},
			})
		}
		activate(one, old, oldLink)
		w.Equal([]string{"first tell crm"}, w.actions("first"))
		activate(w.build("two", "first"), young, youngLink)
		w.Equal([]string{"first tell crm2"}, w.actions("first"))
		mirrored := oldLink
		mirrored.Ref.ObjectUID, mirrored.Activation, mirrored.Outbound = "uid", w.liveRank(), &store.OutboundPolicy{Mode: store.LinkAgentTool, ActionName: "tell", Statuses: []store.RunStatus{}}
		w.NoError(w.s.PutLink(w.ctx, mirrored), "the link of a retired connector stays")
		w.Equal([]string{"first tell crm2"}, w.actions("first"))

		own := w.newLink("own", old.ID, "second", origin)
		own.Outbound = &store.OutboundPolicy{Mode: store.LinkAgentTool, ActionName: "say"}
		w.NoError(w.s.PutLink(w.ctx, own), "a user's link, to a retired connector")
		w.outboundFrom("second", "other", toolPolicy("say"))
		activate(one, old, oldLink)
		w.Equal([]string{"first tell crm"}, w.actions("first"))
		w.Equal([]string{"second say other"}, w.actions("second"), "the older one, while the other was retired")
	}},
	{"links in code swap tool names in one activation", func(w *world) {
		a, aLink := w.codeTool("a", "tell")
		b, bLink := w.codeTool("b", "say")
		for i, names := range [][2]string{{"tell", "say"}, {"say", "tell"}, {"say", "tell"}} {
			aLink.Outbound, bLink.Outbound = &store.OutboundPolicy{Mode: store.LinkAgentTool, ActionName: names[0]}, &store.OutboundPolicy{Mode: store.LinkAgentTool, ActionName: names[1]}
			before, _ := w.s.Connector(w.ctx, a.Key())
			w.activateWith(store.Activation{
				Deployment: w.build(fmt.Sprint("d", i), "first").Key(), Connectors: []store.Connector{a, b}, Links: []store.Link{aLink, bLink},
			})
			w.ElementsMatch([]string{"first " + names[0] + " a", "first " + names[1] + " b"}, w.actions("first"))
			w.Equal(i == 2, before.Version == w.readConnector(a.Key()).Version, "%d: a changed route has a new version", i)
		}
	}},
}

// codeTool returns a code-defined connector, with a link that gives the first agent a tool.
func (w *world) codeTool(name, tool string) (store.Connector, store.Link) {
	c := w.codeConnector(name)
	c.Mode = "outbound"
	l := w.newLink(name+"-first", c.ID, "first", origin)
	l.Ref.ObjectUID, l.Outbound = "", &store.OutboundPolicy{Mode: store.LinkAgentTool, ActionName: tool}
	return c, l
}

// codeConnector returns a code-defined connector that no object mirrors yet.
func (w *world) codeConnector(name string) store.Connector {
	c := w.newConnector(name)
	c.DefinedInCode, c.Ref.ObjectUID, c.Ref.Generation = true, "", 0
	return c
}

func (w *world) liveRank() int64 { return w.readEnvironment(w.environment.Key()).LiveRank }
