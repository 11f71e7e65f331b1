// SPDX-License-Identifier: Apache-2.0

package storetest

import (
	"maps"
	"slices"
	"strings"

	"github.com/google/uuid"

	"github.com/agentplatform/agentplatform/store"
)

// chosenKinds are the kinds whose IDs users choose. Such an ID may equal the ID of anything else.
var chosenKinds = []string{"environment", "deployment", "connector", "link", "API key", "replay"}

// keyedIDs are the ID columns, except the project's, of each primary and unique key of the schema,
// with the kinds of their IDs. "" is a key without any.
//
// If a column has chosen IDs and IDs of another kind, a row could take the key of another row. Such
// a key therefore has a column that tells them apart.
var keyedIDs = map[string]map[string]string{
	"agent_totals(project_id,environment_id,agent_name,test_name)": {"environment_id": "environment"},
	"audit_log(project_id,id)":                                     {"id": "act"},
	"audit_outcomes(project_id,id)":                                {"id": "act"},
	"blob_chunks(project_id,blob_id,number)":                       {"blob_id": "blob"},
	"blobs(project_id,id)":                                         {"id": "blob"},
	"build_log(project_id,deployment_id,number)":                   {"deployment_id": "deployment"},
	"bundles(project_id,digest)":                                   nil,
	"cluster_lease(id)":                                            nil,
	"connector_rollups(project_id,connector_id,grain,begins_at,trigger_type,status)": {"connector_id": "connector"},
	"concurrency_slots(project_id,environment_id,agent_name,key)":                    {"environment_id": "environment"},
	"concurrency_slots(project_id,run_id)":                                           {"run_id": "run"},
	"connectors(project_id,environment_id,name)":                                     {"environment_id": "environment"},
	"connectors(project_id,id)":                                                      {"id": "connector"},
	"cron_ticks(project_id,connector_id)":                                            {"connector_id": "connector"},
	"deliveries(project_id,id)":                                                      {"id": "delivery"},
	"delivery_attempts(project_id,delivery_id,number)":                               {"delivery_id": "delivery"},
	"departed(project_id,kind,id)":                                                   {"id": "connector environment project"},
	"deployment_agents(project_id,deployment_id,name)":                               {"deployment_id": "deployment"},
	"deployments(project_id,id)":                                                     {"id": "deployment"},
	"deployments(sequence)":                                                          nil,
	"derivations(project_id,connector_id,version)":                                   {"connector_id": "connector"},
	"destinations(project_id,connector_id)":                                          {"connector_id": "connector"},
	"ended_connector_runs(project_id,id)":                                            {"id": "delivery event"},
	"ended_runs(project_id,id)":                                                      {"id": "run"},
	"environment_places(project_id,environment_id)":                                  {"environment_id": "environment"},
	"environments(project_id)":                                                       nil,
	"environments(project_id,id)":                                                    {"id": "environment"},
	"environments(project_id,slug)":                                                  nil,
	"idempotency_keys(project_id,connector_id,key)":                                  {"connector_id": "connector"},
	"inputs(project_id,id)":                                                          {"id": "delivery event"},
	"journal(project_id,run_id,sequence)":                                            {"run_id": "run"},
	"key_holders(process)":                                                           nil,
	"links(project_id,connector_id,agent_name)":                                      {"connector_id": "connector"},
	"links(project_id,id)":                                                           {"id": "link"},
	"looks(project_id)":                                                              nil,
	"model_calls(project_id,run_id,sequence)":                                        {"run_id": "run"},
	"object_ids(project_id,id)":                                                      {"id": "API key connector deployment environment link project"},
	"object_ids(project_id,kind,name)":                                               nil,
	"open_connector_runs(project_id,id)":                                             {"id": "event"},
	"open_runs(project_id,id)":                                                       {"id": "run"},
	"ordinals(id)":                                                                   nil,
	"outbox(project_id,consumer,ended_id)":                                           {"ended_id": "connector delivery event run"},
	"outbox_rollups(project_id,ended_id)":                                            {"ended_id": "delivery event run"},
	"outbox_traces(project_id,run_id)":                                               {"run_id": "run"},
	"outbox_words(project_id,ended_id)":                                              {"ended_id": "run"},
	"platform_keys(id)":                                                              nil,
	"platform_keys(rank)":                                                            nil,
	"platform_keys(ring)":                                                            nil,
	"pools(project_id,environment_id)":                                               {"environment_id": "environment"},
	"projects(project_id)":                                                           nil,
	"rejections(project_id,connector_id)":                                            {"connector_id": "connector"},
	"replays(project_id,connector_id)":                                               {"connector_id": "connector"},
	"replays(project_id,id)":                                                         {"id": "replay"},
	"request_windows(project_id)":                                                    nil,
	"runners(project_id,environment_id,id)":                                          {"environment_id": "environment"},
	"run_rollups(project_id,id)":                                                     {"id": "rollup"},
	"run_words(project_id,run_id)":                                                   {"run_id": "run"},
	"usage_rollups(project_id,id)":                                                   {"id": "usage rollup"},
	"exchange_rates(currency,day)":                                                   nil,
	"schema_compat(id)":                                                              nil,
	"schema_fingerprints(version)":                                                   nil,
	"sends(project_id,run_id,position)":                                              {"run_id": "run"},
	"stored_bytes(project_id)":                                                       nil,
	"tokens(sha256)":                                                                 nil,
	"uploads(project_id,digest)":                                                     nil,
	"stored_days(project_id,day)":                                                    nil,
	"audit_days(project_id,day)":                                                     nil,
}

// claims is the only key whose purpose is that an ID has one holder, whatever its kind.
const claims = "object_ids(project_id,id)"

// schemaKey is a primary or unique key.
type schemaKey struct {
	table   string
	columns []string
	// ids are its columns of an ID type, except the project's; nil if the engine has no such type.
	ids []string
}

func (k schemaKey) String() string { return k.table + "(" + strings.Join(k.columns, ",") + ")" }

// schemaKeys returns all keys of the schema.
func (w *world) schemaKeys() (keys []schemaKey) {
	rows, err := w.db.QueryContext(w.ctx, `SELECT c.relname::text, string_agg(a.attname, ',' ORDER BY k.place),
			COALESCE(string_agg(a.attname, ',' ORDER BY k.place) FILTER (WHERE a.atttypid = 'uuid'::regtype AND a.attname <> 'project_id'), '')
		FROM pg_index i JOIN pg_class c ON c.oid = i.indrelid CROSS JOIN unnest(i.indkey) WITH ORDINALITY k (number, place)
		JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum = k.number
		WHERE i.indisunique AND c.relnamespace = 'public'::regnamespace AND NOT c.relispartition GROUP BY i.indexrelid, c.relname`)
	postgres := err == nil
	if !postgres { // SQLite
		rows, err = w.db.QueryContext(w.ctx, `SELECT name, group_concat(of_key, ','), '' FROM (
			SELECT m.name, i.name AS key, k.name AS of_key FROM sqlite_master m JOIN pragma_index_list(m.name) i JOIN pragma_index_info(i.name) k
			WHERE m.type = 'table' AND i."unique" = 1 AND m.name NOT LIKE 'run!_terms!_%' ESCAPE '!' ORDER BY m.name, i.name, k.seqno) GROUP BY name, key`)
	}
	w.NoError(err)
	defer rows.Close()
	for rows.Next() {
		var key schemaKey
		var columns, ids string
		w.NoError(rows.Scan(&key.table, &columns, &ids))
		key.columns = strings.Split(columns, ",")
		if postgres {
			key.ids = strings.FieldsFunc(ids, func(r rune) bool { return r == ',' })
		}
		if !strings.HasPrefix(key.table, "goose_") {
			keys = append(keys, key)
		}
	}
	w.NoError(rows.Err())
	return keys
}

// kindsOfIDs returns the IDs of a project with their kinds. One ID may have several.
func (w *world) kindsOfIDs() map[uuid.UUID][]string {
	kinds := map[uuid.UUID][]string{w.project.ID: {"project"}}
	for kind, of := range map[string]string{
		"act": "audit_log", "blob": "blobs", "connector": "connectors", "deployment": "deployments", "environment": "environments",
		"link": "links", "replay": "replays", "rollup": "run_rollups", "usage rollup": "usage_rollups", "delivery": "deliveries", "event": "open_connector_runs", "run": "open_runs",
		"run ": "ended_runs", "event ": "ended_connector_runs WHERE trigger_type <> 'outbound' AND project_id = $1",
		"delivery ": "ended_connector_runs WHERE trigger_type = 'outbound' AND project_id = $1",
		"API key":   "object_ids WHERE kind = 'APIKey' AND project_id = $1",
		// Deleted objects.
		"project ": "departed WHERE kind = 'Project' AND project_id = $1", "environment ": "departed WHERE kind = 'Environment' AND project_id = $1",
		"connector ": "departed WHERE kind = 'Connector' AND project_id = $1",
	} {
		if !strings.Contains(of, " ") {
			of += " WHERE project_id = $1"
		}
		for _, row := range w.queryTexts(`SELECT CAST(id AS text) FROM ` + of) {
			id := uuid.MustParse(row[0])
			kinds[id] = append(kinds[id], strings.TrimSpace(kind))
		}
	}
	return kinds
}

// queryTexts returns rows of the project as texts.
func (w *world) queryTexts(query string) (out [][]string) {
	rows, err := w.db.QueryContext(w.ctx, query, w.project.ID.String())
	w.NoError(err)
	defer rows.Close()
	columns, err := rows.Columns()
	w.NoError(err)
	for rows.Next() {
		values, into := make([]string, len(columns)), make([]any, len(columns))
		for i := range values {
			into[i] = &values[i]
		}
		w.NoError(rows.Scan(into...))
		out = append(out, values)
	}
	w.NoError(rows.Err())
	return out
}

// heldIDs returns the kinds of the IDs in a column of a key, by the words in that key.
func (w *world) heldIDs(key schemaKey, column string, kinds map[uuid.UUID][]string) map[string][]string {
	ids, words := keyedIDs[key.String()], []string{`''`}
	for _, other := range key.columns {
		if _, id := ids[other]; !id && other != "project_id" {
			words = append(words, `CAST(`+other+` AS text)`)
		}
	}
	held := map[string][]string{}
	for _, row := range w.queryTexts(`SELECT CAST(` + column + ` AS text), ` + strings.Join(words, ` || ' ' || `) + ` FROM ` + key.table + ` WHERE project_id = $1`) {
		of := kinds[uuid.MustParse(row[0])]
		w.NotEmpty(of, "%s has in %s an unknown ID", key, column)
		held[row[1]] = append(held[row[1]], of...)
	}
	for word := range held {
		slices.Sort(held[word])
		held[word] = slices.Compact(held[word])
	}
	return held
}

var heldIDPromises = []promise{
	{"each key of the schema holds IDs of known kinds only", func(w *world) {
		w.departed()
		v := w.newVictim()
		w.NoError(w.s.ClaimID(w.ctx, w.key(uuid.New()), objectRef(store.KindAPIKey, "ci")))
		w.outboundFrom("nobody", "ops", telling)
		w.recordAttempts(attempted(v.delivery, store.DeliveryFailed))
		kinds := w.kindsOfIDs()
		unknown := maps.Clone(keyedIDs)
		for _, key := range w.schemaKeys() {
			ids, classified := keyedIDs[key.String()]
			w.True(classified, "%s is new: add the kinds of its IDs", key)
			delete(unknown, key.String())
			if key.ids != nil {
				w.ElementsMatch(slices.Collect(maps.Keys(ids)), key.ids, key)
			}
			for column, want := range ids {
				var all []string
				for word, of := range w.heldIDs(key, column, kinds) {
					all = append(all, of...)
					chosen := slices.ContainsFunc(of, func(kind string) bool { return slices.Contains(chosenKinds, kind) })
					w.False(chosen && len(of) > 1 && key.String() != claims, "%s: a chosen ID may be another row's %s%s", key, column, word)
				}
				slices.Sort(all)
				w.Equal(want, strings.Join(slices.Compact(all), " "), "%s: %s", key, column)
			}
		}
		for key, ids := range unknown {
			w.Empty(ids, "there is no %s", key)
		}
	}},
}
