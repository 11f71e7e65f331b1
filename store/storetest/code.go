// SPDX-License-Identifier: Apache-2.0

package storetest

import (
	"encoding/json"
	"fmt"

	"github.com/google/uuid"

	"github.com/agentplatform/agentplatform/store"
)

// codePromises are about connectors that a project's code defines.
var codePromises = []promise{
	{"the connectors of a build are kept with its deployment", func(w *world) {
		spec := w.newDeployment("one")
		_, err := w.s.BeginDeployment(w.ctx, spec)
		w.NoError(err)
		_, err = w.s.ConnectorFiles(w.ctx, w.key(uuid.New()))
		w.ErrorIs(err, store.ErrNotFound)
		files, err := w.s.ConnectorFiles(w.ctx, spec.Key())
		w.NoError(err)
		w.Empty(files)
		w.NoError(w.s.StartBuild(w.ctx, spec.Key()))
		result := w.result("content", "first")
		result.Connectors = []store.ConnectorFile{{Key: "orders", Content: "type: webhook\x00 # ü"}, {Key: "nightly", Content: ""}}
		w.NoError(w.s.FinishBuild(w.ctx, spec.Key(), result))
		files, err = w.s.ConnectorFiles(w.ctx, spec.Key())
		w.NoError(err)
		w.Len(files, 2)
		w.Equal("nightly", files[0].Key)
		w.Contains(files[1].Content, "# ü")
	}},
	{"the connectors of a build are bounded in number, size and form", func(w *world) {
		spec := w.newDeployment("one")
		_, err := w.s.BeginDeployment(w.ctx, spec)
		w.NoError(err)
		w.NoError(w.s.StartBuild(w.ctx, spec.Key()))
		file := func(key string, size int) store.ConnectorFile {
			return store.ConnectorFile{Key: key, Content: text(size)}
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
			"a long name":    {[]store.ConnectorFile{file(text(41), 1)}, store.ErrInvalid},
		} {
			result := w.result("content", "first")
			result.Connectors = c.files
			w.ErrorIs(w.s.FinishBuild(w.ctx, spec.Key(), result), c.want, name)
		}
		result := w.result("content", "first")
		result.Connectors = many
		w.NoError(w.s.FinishBuild(w.ctx, spec.Key(), result))
	}},
	{"what would become of connectors is recorded", func(w *world) {
		spec := w.build("one", "first")
		results := json.RawMessage(`[{"connector":"orders","action":"failed","error":"no"}]`)
		w.NoError(w.s.RecordConnectors(w.ctx, spec.Key(), results))
		w.JSONEq(string(results), string(w.deployment(spec.ID).ConnectorResults))
		w.ErrorIs(w.s.RecordConnectors(w.ctx, w.key(uuid.New()), results), store.ErrNotFound)
	}},
	{"what was done with connectors is recorded once it is done", func(w *world) {
		old, late := w.deploy("one", "first"), w.build("two", "first")
		_, err := w.s.Activate(w.ctx, store.Activation{Deployment: old.Key(), RequestedAt: &origin})
		w.NoError(err)
		results := json.RawMessage(`[{"connector":"orders","action":"created","error":null}]`)
		_, err = w.s.Activate(w.ctx, store.Activation{Deployment: late.Key(), ConnectorResults: results})
		w.NoError(err)
		w.Nil(w.deployment(late.ID).ConnectorResults, "it is not live")
		_, err = w.s.Activate(w.ctx, store.Activation{Deployment: late.Key(), RequestedAt: &origin, ConnectorResults: results})
		w.NoError(err)
		w.JSONEq(string(results), string(w.deployment(late.ID).ConnectorResults))
	}},
	{"an activation keeps the connectors that are to stay as they are", func(w *world) {
		kept, gone := w.codeConnector("kept"), w.codeConnector("gone")
		_, err := w.s.Activate(w.ctx, store.Activation{Deployment: w.build("one", "first").Key(), Connectors: []store.Connector{kept, gone}})
		w.NoError(err)
		before, err := w.s.Connector(w.ctx, kept.Key())
		w.NoError(err)
		_, err = w.s.Activate(w.ctx, store.Activation{Deployment: w.build("two", "first").Key(), Kept: []uuid.UUID{kept.ID, uuid.New()}})
		w.NoError(err)
		after, err := w.s.Connector(w.ctx, kept.Key())
		w.NoError(err)
		w.Equal(before, after)
		retired, err := w.s.Connector(w.ctx, gone.Key())
		w.NoError(err)
		w.True(retired.Retired)
	}},
	{"a mirror of an activation that another has followed is not put", func(w *world) {
		connector := w.codeConnector("orders")
		link := w.newLink("orders-first", connector.ID, "first", origin)
		link.Ref.ObjectUID = ""
		one := w.build("one", "first")
		_, err := w.s.Activate(w.ctx, store.Activation{Deployment: one.Key(), Connectors: []store.Connector{connector}, Links: []store.Link{link}})
		w.NoError(err)
		mirrored, mirroredLink := connector, link
		mirrored.Ref.ObjectUID, mirroredLink.Ref.ObjectUID = "uid", "uid-of-link"
		mirrored.Activation, mirroredLink.Activation = w.liveRank(), w.liveRank()
		before, err := w.s.Connector(w.ctx, connector.Key())
		w.NoError(err)
		w.NoError(w.s.PutConnector(w.ctx, mirrored))
		w.NoError(w.s.PutLink(w.ctx, mirroredLink))
		after, err := w.s.Connector(w.ctx, connector.Key())
		w.NoError(err)
		w.Equal(before.Version, after.Version, "the mirror says what the activation said")
		w.Equal("uid", after.Ref.ObjectUID)

		_, err = w.s.Activate(w.ctx, store.Activation{Deployment: w.build("two", "first").Key()})
		w.NoError(err)
		w.ErrorIs(w.s.PutConnector(w.ctx, mirrored), store.ErrNotLive)
		mirroredLink.FilesRequired = true
		w.ErrorIs(w.s.PutLink(w.ctx, mirroredLink), store.ErrNotLive)
		retired, err := w.s.Connector(w.ctx, connector.Key())
		w.NoError(err)
		w.True(retired.Retired)

		_, err = w.s.Activate(w.ctx, store.Activation{Deployment: one.Key(), RequestedAt: &origin, Connectors: []store.Connector{connector}, Links: []store.Link{link}})
		w.NoError(err)
		w.ErrorIs(w.s.PutConnector(w.ctx, mirrored), store.ErrNotLive, "the same deployment, another activation")
		mirrored.Activation = w.liveRank()
		w.NoError(w.s.PutConnector(w.ctx, mirrored))
	}},
	{"a mirrored link that was forgotten is one of code again", func(w *world) {
		connector := w.codeConnector("orders")
		link := w.newLink("orders-first", connector.ID, "first", origin)
		_, err := w.s.Activate(w.ctx, store.Activation{Deployment: w.build("one", "first").Key(), Connectors: []store.Connector{connector}})
		w.NoError(err)
		link.Activation = w.liveRank()
		w.NoError(w.s.PutLink(w.ctx, link))
		_, err = w.s.Activate(w.ctx, store.Activation{Deployment: w.build("two", "first").Key(), Connectors: []store.Connector{connector}})
		w.NoError(err)
		route, err := w.s.Route(w.ctx, connector.Key())
		w.NoError(err)
		w.Empty(route.Links)
	}},
}

// codeConnector is one that code defines and that no object mirrors yet.
func (w *world) codeConnector(name string) store.Connector {
	c := w.newConnector(name)
	c.DefinedInCode, c.Ref.ObjectUID, c.Ref.Generation = true, "", 0
	return c
}

func (w *world) liveRank() int64 {
	e, err := w.s.Environment(w.ctx, w.environment.Key())
	w.NoError(err)
	return e.LiveRank
}
