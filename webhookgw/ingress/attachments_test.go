// SPDX-License-Identifier: Apache-2.0

package ingress

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime/multipart"
	"net/http"
	"net/http/httptest"
	"net/textproto"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/internal/fields"
	"github.com/agentplatform/agentplatform/internal/httpserver"
	"github.com/agentplatform/agentplatform/store"
)

// shelf stores files.
type shelf struct {
	attachments
	blobs map[uuid.UUID]string
}

func newShelf() *shelf {
	s := &shelf{blobs: map[uuid.UUID]string{}}
	s.put = func(blob uuid.UUID, r io.Reader) error {
		data, err := io.ReadAll(r)
		if err == nil {
			s.blobs[blob] = string(data)
		}
		return err
	}
	s.drop = func(blob uuid.UUID) { delete(s.blobs, blob) }
	return s
}

// listFiles returns the files as lines: name, field, and type with size or the reason.
func (s *shelf) listFiles() (lines []string) {
	for _, f := range s.files {
		line := f.Name + " " + f.FieldName + " " + string(f.Reason)
		if f.Blob != nil {
			line = fmt.Sprintf("%s %s %s %q", f.Name, f.FieldName, f.MIMEType, s.blobs[*f.Blob])
		}
		lines = append(lines, line)
	}
	return lines
}

const png = "\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR"

func b64(text string) string { return base64.StdEncoding.EncodeToString([]byte(text)) }

func TestInline_Files(t *testing.T) {
	t.Parallel()
	for body, want := range map[string][]string{
		`{"a":1}`: nil,
		`{"files":["data",{"name":"data"}],"a":{"files":[{"data":"x"}]}}`: nil,
		`{"files":{"data":"x"}}`:                                                                     nil,
		`{"files":[[{"data":"x"}]]}`:                                                                 nil,
		`{"files":[{"a":{"data":"x"}}]}`:                                                             nil,
		`{"files":[0],"a":[{"data":"x"}],"Files":[{"data":""}]}`:                                     nil,
		`{"files":[{"name":"a.png","mime_type":"image/png","data":"` + b64(png) + `"}]}`:             {fmt.Sprintf("a.png files image/png %q", png)},
		`{"files":[{"data":"` + b64("# hi") + `","mime_type":"text/markdown","name":"\u0061\".x"}]}`: {`a".x files text/markdown "# hi"`},
		`{"f\u0069les" : [ { "\u0064ata" : "` + b64("hi") + `" } ] }`:                                {` files text/plain "hi"`},
		`{"files":[{"data":"Pz8\/\r\nPz8\u002b"},{"data":"Pz8_Pz8-"}],"files":0,"x":{}}`:             {` files text/plain "?????>"`, ` files text/plain "?????>"`},
		`{"files":[{"data":"YQ=="},{"name":"b"},7,{"data":null},{"data":"YQ"}]}`:                     {` files text/plain "a"`, ` files text/plain "a"`, "b files invalid_encoding", " files invalid_encoding", " files invalid_encoding"},
		`{"files":[{"name":"a","data":"!"},{"name":"b","data":"Y"},{"name":"c","data":"YQ==YQ"},{"name":"d","data":"YQ"}]}`: {
			"a files invalid_encoding", "b files invalid_encoding", "c files invalid_encoding", `d files text/plain "a"`,
		},
		`{"files":[{"name":"x.exe","mime_type":"image/png","data":"` + b64("MZ\x00\x00\x00") + `"}]}`: {"x.exe files unsupported_type"},
	} {
		t.Run(fmt.Sprintf("%.60s", body), func(t *testing.T) {
			for name, in := range map[string]io.Reader{"whole": strings.NewReader(body), "bytes": iotest.OneByteReader(strings.NewReader(body))} {
				t.Run(name, func(t *testing.T) {
					s := newShelf()
					j := newInlineFiles(in, &s.attachments)
					rest, err := io.ReadAll(j)
					require.NoError(t, err, body)
					require.NoError(t, j.text.problem(), body)
					require.Equal(t, want, s.listFiles(), "%s", body)
					require.True(t, json.Valid(rest), "%s", rest)
					if want == nil {
						require.Equal(t, body, string(rest))
					}
				})
			}
		})
	}
}

// part is a part of a multipart body. A file has a name.
type part struct{ field, file, kind, encoding, text string }

func multipartBody(t *testing.T, parts ...part) (string, string) {
	t.Helper()
	var out bytes.Buffer
	w := multipart.NewWriter(&out)
	for _, p := range parts {
		header := textproto.MIMEHeader{}
		disposition := fmt.Sprintf(`form-data; name=%q`, p.field)
		if p.file != "" {
			disposition += fmt.Sprintf(`; filename=%q`, strings.TrimPrefix(p.file, "-"))
		}
		header.Set("Content-Disposition", disposition)
		for name, value := range map[string]string{"Content-Type": p.kind, "Content-Transfer-Encoding": p.encoding} {
			if value != "" {
				header.Set(name, value)
			}
		}
		to, err := w.CreatePart(header)
		require.NoError(t, err)
		_, err = io.WriteString(to, p.text)
		require.NoError(t, err)
	}
	require.NoError(t, w.Close())
	return out.String(), w.Boundary()
}

func TestMultipart_Bodies(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		parts  []part
		object string
		files  []string
	}{
		"texts": {[]part{{field: "a", text: "1"}, {field: "b", text: "ä\n"}, {field: "a", text: ""}}, `{"a":["1",""],"b":"ä\n"}`, nil},
		"files": {[]part{{field: "f", file: "a.txt", text: "hi"}, {field: "a", text: "1"}, {field: "g", file: `C:\x\b.png`, text: png}}, `{"a":"1"}`,
			[]string{`a.txt f text/plain "hi"`, fmt.Sprintf(`C:\x\b.png g image/png %q`, png)}},
		"none chosen":  {[]part{{field: "f", file: "-", kind: "application/octet-stream"}, {field: "a", text: "1"}}, `{"a":"1"}`, nil},
		"without name": {[]part{{field: "f", file: "-", text: "x"}}, `{}`, []string{` f text/plain "x"`}},
		"base64": {[]part{{field: "f", file: "a", encoding: "base64", text: "aGk="}, {field: "f", file: "b", encoding: "base64", text: "aGk!xxxx"},
			{field: "f", file: "c", encoding: "x-gzip", text: "aGk"}, {field: "a", encoding: "base64", text: "aGk="}}, `{"a":"hi"}`,
			[]string{`a f text/plain "hi"`, "b f invalid_encoding", "c f invalid_encoding"}},
		"reserved without files": {[]part{{field: "files", text: "1"}}, `{"files":"1"}`, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			body, boundary := multipartBody(t, c.parts...)
			for _, in := range []io.Reader{strings.NewReader(body), iotest.OneByteReader(strings.NewReader(body))} {
				s := newShelf()
				pairs, err := io.ReadAll(newMultipartReader(in, boundary, &s.attachments, nil))
				require.NoError(t, err)
				object, err := fields.Object(pairs)
				require.NoError(t, err)
				require.Equal(t, c.object, string(object))
				require.Equal(t, c.files, s.listFiles())
			}
		})
	}
}

func TestMultipart_InvalidBodies(t *testing.T) {
	t.Parallel()
	whole, boundary := multipartBody(t, part{field: "a", text: "1"})
	reserved, of := multipartBody(t, part{field: "file_issues", text: "1"}, part{field: "f", file: "a", text: "x"})
	latin, in := multipartBody(t, part{field: "a", kind: "text/plain; charset=latin1", text: "1"})
	var parts []part
	for range store.MaxNamedFiles + 1 {
		parts = append(parts, part{field: "f", file: "a", text: "x"})
	}
	many, all := multipartBody(t, parts...)
	for name, c := range map[string][2]string{
		"another boundary": {whole, "x"}, "broken off": {whole[:len(whole)-8], boundary}, "empty": {"", "x"}, "reserved names": {reserved, of},
		"no name":   {"--x\r\nContent-Disposition: form-data\r\n\r\n1\r\n--x--\r\n", "x"},
		"no form":   {"--x\r\nContent-Type: text/plain\r\n\r\n1\r\n--x--\r\n", "x"},
		"no UTF-8":  {"--x\r\nContent-Disposition: form-data; name=a\r\n\r\n\xff\r\n--x--\r\n", "x"},
		"header":    {"--x\r\nContent-Disposition: form-data; name=a\r\nX: " + strings.Repeat("x", maxPartHeader) + "\r\n\r\n1\r\n--x--\r\n", "x"},
		"long name": {"--x\r\nContent-Disposition: form-data; name=" + strings.Repeat("x", fields.MaxKey+1) + "\r\n\r\n1\r\n--x--\r\n", "x"},
		"charset":   {latin, in}, "many files": {many, all},
	} {
		t.Run(name, func(t *testing.T) {
			s := newShelf()
			_, err := io.ReadAll(newMultipartReader(strings.NewReader(c[0]), c[1], &s.attachments, nil))
			var p httpserver.Problem
			require.ErrorAs(t, err, &p)
			require.Equal(t, httpserver.CodeInvalidForm, p.Code)
		})
	}
	body := io.MultiReader(strings.NewReader(whole[:len(whole)-8]), iotest.ErrReader(io.ErrClosedPipe))
	_, err := io.ReadAll(newMultipartReader(body, boundary, &newShelf().attachments, nil))
	require.ErrorIs(t, err, io.ErrClosedPipe)
}

// TestAttachments_StopAtFirstOverflow: files before the overflow are kept, and later ones are not.
func TestAttachments_StopAtFirstOverflow(t *testing.T) {
	t.Parallel()
	kb := func(n int) string { return strings.Repeat("x", n<<10) }
	const x, mb = "", 1 << 10
	for name, c := range map[string]struct {
		files []string
		want  []store.FileReason
	}{
		"maximum number": {strings.Split("1234567890", ""), []store.FileReason{x, x, x, x, x, x, x, x, x, x}},
		"one more":       {strings.Split("123456789012", ""), []store.FileReason{x, x, x, x, x, x, x, x, x, x, "too_many_files", "too_many_files"}},
		"omitted ones do not count": {append([]string{"MZ\x00"}, strings.Split("1234567890", "")...),
			[]store.FileReason{"unsupported_type", x, x, x, x, x, x, x, x, x, x}},
		"maximum size":              {[]string{kb(10 * mb)}, []store.FileReason{x}},
		"one too large":             {[]string{"a", kb(10*mb) + "x", "b"}, []store.FileReason{x, "file_too_large", "total_too_large"}},
		"maximum total size":        {[]string{kb(6 * mb), kb(4 * mb)}, []store.FileReason{x, x}},
		"together too large":        {[]string{kb(6 * mb), kb(4*mb) + "x", "a"}, []store.FileReason{x, "total_too_large", "total_too_large"}},
		"dropped files are deleted": {[]string{"MZ\x00" + kb(9*mb), kb(9 * mb)}, []store.FileReason{"unsupported_type", x}},
	} {
		t.Run(name, func(t *testing.T) {
			s := newShelf()
			stored := 0
			for i, text := range c.files {
				number, err := s.addFile("f", strings.NewReader(text))
				require.NoError(t, err)
				require.Equal(t, i, number)
				require.Equal(t, c.want[i], s.files[i].Reason, "%s %d", name, i)
				require.Equal(t, c.want[i] == "", s.files[i].Blob != nil, "%s %d", name, i)
				if c.want[i] == "" {
					stored++
				}
			}
			require.Len(t, s.blobs, stored)
		})
	}
}

// uploads sends two files and a text, and returns the event and the response.
func uploads(t *testing.T, k *keeper, key string) (store.Event, map[string]any, int) {
	t.Helper()
	body, boundary := multipartBody(t, part{field: "a", text: "1"}, part{field: "f", file: "a.txt", text: "hi"}, part{field: "g", file: "x.exe", text: "MZ\x00\x00"})
	r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/hooks/"+project.String()+"/"+uuid.NewString(), strings.NewReader(body))
	r.Header.Set("Content-Type", "multipart/form-data; boundary="+boundary)
	r.Header.Set("Idempotency-Key", key)
	w := httptest.NewRecorder()
	h := serving(t, k)
	h.ServeHTTP(w, r)
	require.Zero(t, h.bodies.Taken())
	var answer map[string]any
	require.NoError(t, json.Unmarshal(w.Body.Bytes(), &answer))
	if len(k.events) == 0 {
		return store.Event{}, answer, w.Code
	}
	return k.events[0], answer, w.Code
}

func TestAttachments_AreStoredAndReturned(t *testing.T) {
	t.Parallel()
	k := &keeper{keep: true}
	e, answer, _ := uploads(t, k, "k")
	require.Equal(t, `{"a":"1"}`, string(e.Input))
	require.Len(t, e.Files, 2)
	require.Equal(t, "hi", string(k.blobs[*e.Files[0].Blob]))
	require.EqualValues(t, 1, answer["accepted"])
	require.EqualValues(t, 1, answer["omitted"])
	require.Equal(t, []any{map[string]any{"name": "x.exe", "field_name": "g", "reason": "unsupported_type"}}, answer["issues"])
	require.Zero(t, k.dropped)
	again, _, _ := uploads(t, &keeper{}, "k") // with another boundary
	require.Equal(t, e.Idempotency.Fingerprint, again.Idempotency.Fingerprint)
}

// TestAttachments_BeyondReviewBudgetAreStored: they are accepted, and the response says that no
// agent gets them. A run that needs files fails.
func TestAttachments_BeyondReviewBudgetAreStored(t *testing.T) {
	t.Parallel()
	k := &keeper{keep: true}
	h := serving(t, k)
	h.opts.ReviewBudget = 5
	body := `{"files":[{"name":"a.txt","data":"` + b64("hello") + `"},{"name":"b.txt","data":"` + b64("x") + `"}]}`
	answer, _ := post(t, h, strings.NewReader(body))
	require.Equal(t, http.StatusOK, answer.Code)
	files := k.events[0].Files
	require.Equal(t, []store.FileReason{"", store.FileBeyondReview}, []store.FileReason{files[0].Reason, files[1].Reason})
	require.Equal(t, "x", string(k.blobs[*files[1].Blob]))
	require.Zero(t, k.dropped)
	var listFiles struct {
		Accepted, Omitted int
		Issues            []map[string]string
	}
	require.NoError(t, json.Unmarshal(answer.Body.Bytes(), &listFiles))
	require.Equal(t, 2, listFiles.Accepted)
	require.Zero(t, listFiles.Omitted)
	require.Equal(t, []map[string]string{{"name": "b.txt", "field_name": "files", "reason": "review_budget"}}, listFiles.Issues)
}

// TestAttachments_DefaultReviewBudget: the maximum size of an event's files.
func TestAttachments_DefaultReviewBudget(t *testing.T) {
	t.Parallel()
	require.EqualValues(t, maxFilesBytes, New(Options{Store: &keeper{}}).opts.ReviewBudget)
	require.EqualValues(t, 1, New(Options{Store: &keeper{}, ReviewBudget: 1}).opts.ReviewBudget)
}

// TestAttachments_DuplicateStoresNothing: its response is that of the first request.
func TestAttachments_DuplicateStoresNothing(t *testing.T) {
	t.Parallel()
	k := &keeper{known: true, verdict: store.Repeated, files: []store.File{{Name: "z", Reason: store.FileUnsupported}}}
	e, answer, _ := uploads(t, k, "k")
	require.True(t, e.Repeat)
	require.Zero(t, k.begun)
	require.Zero(t, k.dropped)
	require.EqualValues(t, 0, answer["accepted"])
	require.EqualValues(t, 1, answer["omitted"])
}

// TestAttachments_RejectedRequestDropsFiles: for every error.
func TestAttachments_RejectedRequestDropsFiles(t *testing.T) {
	t.Parallel()
	k := &keeper{verdict: store.KeyReused}
	_, _, code := uploads(t, k, "k")
	require.Equal(t, http.StatusUnprocessableEntity, code)
	require.Equal(t, 1, k.dropped)
	k = &keeper{store: errors.New("away")}
	_, _, code = uploads(t, k, "k")
	require.Equal(t, http.StatusServiceUnavailable, code)
	require.Empty(t, k.events)
	k = &keeper{}
	h := serving(t, k)
	file := `{"files":[{"data":"` + b64(strings.Repeat("x", 300<<10)) + `"`
	for body, want := range map[string]int{file + `}]`: 400, file + `}],"b":x}`: 400, file: 400, file + `}],"a":"` + strings.Repeat("x", MaxBody) + `"}`: 413} {
		t.Run(fmt.Sprintf("%.60s", body), func(t *testing.T) {
			before, dropped := k.begun, k.dropped
			answer, _ := post(t, h, strings.NewReader(body))
			require.Equal(t, want, answer.Code)
			require.Equal(t, k.begun-before, k.dropped-dropped)
		})
	}
	require.Empty(t, k.events)
}

// FuzzInline: extracted parts are files, and the rest is valid JSON.
func FuzzInline(f *testing.F) {
	for _, seed := range []string{`{"files":[{"name":"a","data":"aGk="}]}`, `{"files":[{"data":"a\/\u002b"},{}]}`, `{"files":[0,{"data"`, `{"a":"`} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		s := newShelf()
		j := newInlineFiles(bytes.NewReader(body), &s.attachments)
		rest, err := io.ReadAll(j)
		if err != nil {
			require.ErrorAs(t, err, new(httpserver.Problem))
			return
		}
		valid := json.Valid(body)
		require.Equal(t, valid, j.text.text.Close() == nil)
		if valid {
			require.True(t, json.Valid(rest), "%q", rest)
			require.LessOrEqual(t, len(rest), len(body))
		}
		if len(s.files) == 0 {
			require.Equal(t, string(body), string(rest))
		}
		require.LessOrEqual(t, len(s.files), store.MaxNamedFiles)
	})
}

// FuzzMultipart: each input is read or rejected, within the memory limits.
func FuzzMultipart(f *testing.F) {
	f.Add([]byte("--x\r\nContent-Disposition: form-data; name=a\r\n\r\n1\r\n--x\r\nContent-Disposition: form-data; name=f; filename=b\r\n\r\nhi\r\n--x--\r\n"))
	f.Add([]byte("--x\r\nContent-Disposition: form-data; name=f; filename=b\r\nContent-Transfer-Encoding: base64\r\n\r\naGk=\r\n--x--"))
	f.Fuzz(func(t *testing.T, body []byte) {
		s := newShelf()
		pairs, err := io.ReadAll(newMultipartReader(bytes.NewReader(body), "x", &s.attachments, nil))
		if err != nil {
			require.ErrorAs(t, err, new(httpserver.Problem))
			return
		}
		_, err = fields.Object(pairs)
		require.NoError(t, err)
		accepted, _ := store.SplitFiles(s.files)
		require.Len(t, s.blobs, len(accepted))
	})
}
