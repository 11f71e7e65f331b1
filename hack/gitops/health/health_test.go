// SPDX-License-Identifier: Apache-2.0

package health_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	lua "github.com/yuin/gopher-lua"
	"sigs.k8s.io/yaml"
)

// scripts are the health checks of config/argocd by the kind that they are for.
func scripts(t *testing.T) map[string]string {
	t.Helper()
	text, err := os.ReadFile("../../../config/argocd/health.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var patch struct {
		Data map[string]string `json:"data"`
	}
	if err := yaml.UnmarshalStrict(text, &patch); err != nil {
		t.Fatal(err)
	}
	out := map[string]string{}
	for key, script := range patch.Data {
		kind, ok := strings.CutPrefix(key, "resource.customizations.health.agentplatform.dev_")
		if !ok {
			t.Fatalf("Argo CD knows no key %q", key)
		}
		out[kind] = script
	}
	return out
}

// health runs a script as Argo CD does: with the object as obj, and without libraries that reach
// out of it.
func health(t *testing.T, script string, object map[string]any) (status, message string) {
	t.Helper()
	l := lua.NewState(lua.Options{SkipOpenLibs: true})
	defer l.Close()
	for name, open := range map[string]lua.LGFunction{lua.BaseLibName: lua.OpenBase, lua.TabLibName: lua.OpenTable, lua.StringLibName: lua.OpenString, lua.MathLibName: lua.OpenMath} {
		if err := l.CallByParam(lua.P{Fn: l.NewFunction(open), Protect: true}, lua.LString(name)); err != nil {
			t.Fatal(err)
		}
	}
	l.SetGlobal("obj", value(l, object))
	if err := l.DoString(script); err != nil {
		t.Fatal(err)
	}
	answer, ok := l.Get(-1).(*lua.LTable)
	if !ok {
		t.Fatal("the script returns no table")
	}
	return lua.LVAsString(answer.RawGetString("status")), lua.LVAsString(answer.RawGetString("message"))
}

// value converts a JSON value to a Lua value.
func value(l *lua.LState, of any) lua.LValue {
	switch v := of.(type) {
	case bool:
		return lua.LBool(v)
	case float64:
		return lua.LNumber(v)
	case string:
		return lua.LString(v)
	case []any:
		table := l.NewTable()
		for _, one := range v {
			table.Append(value(l, one))
		}
		return table
	case map[string]any:
		table := l.NewTable()
		for key, one := range v {
			table.RawSetString(key, value(l, one))
		}
		return table
	}
	return lua.LNil
}

// Every kind with a CRD has a health script, and every health script has a CRD.
func TestHealth_CoversAllKinds(t *testing.T) {
	crds, err := filepath.Glob("../../../config/crd/bases/*.yaml")
	if err != nil || len(crds) == 0 {
		t.Fatal("no CRDs", err)
	}
	known := scripts(t)
	for _, path := range crds {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		kind := regexp.MustCompile(`(?m)^    kind: (\w+)$`).FindSubmatch(text)
		if kind == nil || known[string(kind[1])] == "" {
			t.Errorf("%s: Argo CD has no health check", path)
			continue
		}
		delete(known, string(kind[1]))
	}
	for kind := range known {
		t.Errorf("there is no kind %s", kind)
	}
}

// An Environment can be ready without running the commit from Git. Its health then reports the progress or the failure of that
// commit.
func TestHealth_OfAnEnvironmentThatFollowsGit(t *testing.T) {
	const object = `{"kind":"Environment","metadata":{"generation":2},"spec":{"git":%s},"status":{"observedGeneration":2,"liveCommit":"1111",
		"conditions":[{"type":"Ready","status":"True","reason":%q,"message":"in effect"},{"type":"SourceFollowed","status":%q,"reason":%q,"message":"the commit"}]}}`
	for name, c := range map[string]struct{ git, ready, followed, reason, status, message string }{
		"live":                     {`{"commit":"1111"}`, "Succeeded", "True", "Succeeded", "Healthy", "in effect"},
		"on its way":               {`{"commit":"2222"}`, "Succeeded", "True", "Succeeded", "Progressing", "commit 2222 is not live yet"},
		"failed":                   {`{"commit":"2222"}`, "Succeeded", "False", "DeploymentFailed", "Degraded", "the commit"},
		"replaced by a person":     {`{"commit":"1111"}`, "Succeeded", "False", "DeploymentFailed", "Degraded", "the commit"},
		"refused by a quota":       {`{"autoDeploy":true}`, "Succeeded", "False", "Refused", "Degraded", "the commit"},
		"the newest failed":        {`{"autoDeploy":true}`, "Succeeded", "False", "DeploymentFailed", "Degraded", "the commit"},
		"the newest is built":      {`{"autoDeploy":true}`, "Succeeded", "True", "Succeeded", "Healthy", "in effect"},
		"the host does not answer": {`{"autoDeploy":true}`, "Succeeded", "False", "FetchFailed", "Healthy", "in effect"},
		"the folder is unseen yet": {`{"autoDeploy":true}`, "Succeeded", "False", "FolderUnseen", "Healthy", "in effect"},
		"suspended":                {`{"commit":"2222"}`, "Suspended", "False", "DeploymentFailed", "Suspended", "in effect"},
		"follows nothing":          {`{}`, "Succeeded", "Unknown", "", "Healthy", "in effect"},
	} {
		t.Run(name, func(t *testing.T) {
			environment := map[string]any{}
			if err := json.Unmarshal(fmt.Appendf(nil, object, c.git, c.ready, c.followed, c.reason), &environment); err != nil {
				t.Fatal(name, err)
			}
			if status, message := health(t, scripts(t)["Environment"], environment); status != c.status || message != c.message {
				t.Errorf("%s, %q", status, message)
			}
		})
	}
}

// The live commit alone does not show that another folder of the same commit is live. The health therefore compares the live
// folder, too.
func TestHealth_OfAnotherFolder(t *testing.T) {
	const object = `{"kind":"Environment","metadata":{"generation":2},"spec":{"git":{"commit":"1111"}},"status":{"observedGeneration":2,"liveCommit":"1111"%s,
		"conditions":[{"type":"Ready","status":"True","reason":"Succeeded","message":"in effect"},{"type":"SourceFollowed","status":%q,"reason":%q,"message":"the commit"}]}}`
	for name, c := range map[string]struct{ folders, followed, reason, status, message string }{
		"live":              {`,"livePath":"a","git":{"path":"a"}`, "True", "Succeeded", "Healthy", "in effect"},
		"being built":       {`,"livePath":"","git":{"path":"a"}`, "True", "Succeeded", "Progressing", `folder "a" of the repository is not live yet`},
		"failed":            {`,"livePath":"","git":{"path":"a"}`, "False", "DeploymentFailed", "Degraded", "the commit"},
		"an upload is live": {`,"git":{"path":"a"}`, "True", "Succeeded", "Healthy", "in effect"},
		"nothing was asked": {`,"livePath":"a"`, "Unknown", "", "Healthy", "in effect"},
	} {
		t.Run(name, func(t *testing.T) {
			environment := map[string]any{}
			if err := json.Unmarshal(fmt.Appendf(nil, object, c.folders, c.followed, c.reason), &environment); err != nil {
				t.Fatal(name, err)
			}
			if status, message := health(t, scripts(t)["Environment"], environment); status != c.status || message != c.message {
				t.Errorf("%s, %q", status, message)
			}
		})
	}
}

func TestHealth_OfEachKind(t *testing.T) {
	const ready, waits, stalled = `{"type":"Ready","status":"True","reason":"Succeeded","message":"in effect"}`,
		`{"type":"Ready","status":"False","reason":"SecretMissing","message":"no Secret"}`,
		`{"type":"Stalled","status":"True","reason":"Refused","message":"a quota"}`
	for name, c := range map[string]struct{ object, status, message string }{
		"nobody has seen it":  {`{"metadata":{"generation":1}}`, "Progressing", "the platform has not looked at this generation yet"},
		"as the CRD defaults": {`{"metadata":{"generation":1},"status":{"observedGeneration":-1}}`, "Progressing", "the platform has not looked at this generation yet"},
		"in effect":           {`{"metadata":{"generation":2},"status":{"observedGeneration":2,"conditions":[` + ready + `]}}`, "Healthy", "in effect"},
		"nothing live yet": {`{"metadata":{"generation":2},"status":{"observedGeneration":2,"conditions":[` + ready +
			`,{"type":"DeploymentLive","status":"False","reason":"NotLive","message":"no deployment is live"}]}}`, "Healthy", "in effect"},
		"in effect before":      {`{"metadata":{"generation":3},"status":{"observedGeneration":2,"conditions":[` + ready + `]}}`, "Progressing", "the platform has not looked at this generation yet"},
		"failed before":         {`{"metadata":{"generation":3},"status":{"observedGeneration":2,"conditions":[` + waits + `,` + stalled + `]}}`, "Progressing", "the platform has not looked at this generation yet"},
		"failed":                {`{"metadata":{"generation":2},"status":{"observedGeneration":2,"conditions":[` + waits + `,` + stalled + `]}}`, "Degraded", "a quota"},
		"under way":             {`{"metadata":{"generation":2},"status":{"observedGeneration":1,"conditions":[{"type":"Ready","status":"Unknown"},{"type":"Reconciling","status":"True","message":"packing"}]}}`, "Progressing", "packing"},
		"waits for a Secret":    {`{"metadata":{"generation":2},"status":{"observedGeneration":1,"conditions":[` + waits + `,{"type":"Reconciling","status":"True","message":"no Secret"}]}}`, "Progressing", "no Secret"},
		"looked at again":       {`{"metadata":{"generation":2},"status":{"observedGeneration":2,"conditions":[` + ready + `,{"type":"Reconciling","status":"True","message":"the data store does not answer"}]}}`, "Progressing", "the data store does not answer"},
		"not ready, and no why": {`{"metadata":{"generation":2},"status":{"observedGeneration":2,"conditions":[` + waits + `]}}`, "Progressing", "no Secret"},
		"stalled no more":       {`{"metadata":{"generation":2},"status":{"observedGeneration":2,"conditions":[` + ready + `,{"type":"Stalled","status":"False","message":"a quota"}]}}`, "Healthy", "in effect"},
		"suspended":             {`{"metadata":{"generation":2},"status":{"observedGeneration":2,"conditions":[{"type":"Ready","status":"True","reason":"Suspended","message":"suspended"}]}}`, "Suspended", "suspended"},
	} {
		t.Run(name, func(t *testing.T) {
			object := map[string]any{}
			if err := json.Unmarshal([]byte(c.object), &object); err != nil {
				t.Fatal(name, err)
			}
			for kind, script := range scripts(t) {
				if status, message := health(t, script, object); status != c.status || message != c.message {
					t.Errorf("%s, %s: %s, %q", name, kind, status, message)
				}
			}
		})
	}
}
