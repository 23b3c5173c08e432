// Command contract sends generated prioritize requests to an extender, encoded with the types of kube-scheduler,
// and decodes every answer as kube-scheduler does (pkg/scheduler/extender.go: json.NewDecoder(body).Decode(&HostPriorityList)).
// What Go's decoder refuses, and what it would take but misread (a host missing, twice or unasked, a score outside 0..10),
// counts as rejected.
package main

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"sync"
	"time"

	extenderv1 "k8s.io/kube-scheduler/extender/v1"
)

// Report is the last line of standard output.
type Report struct {
	Requests  int            `json:"requests"`
	Rejected  int            `json:"rejected"`
	Neutral   int            `json:"neutral"`
	Ranked    int            `json:"ranked"`
	Hosts     int            `json:"hosts"`
	Refused   int            `json:"refused_with_400"`
	Reused    int            `json:"calls_on_kept_connections"`
	Seconds   float64        `json:"seconds"`
	Problems  []string       `json:"problems"`
	BySize    map[string]int `json:"by_size"`
	ByVariant map[string]int `json:"by_variant"`
}

const keptProblems = 20

func main() {
	url := flag.String("url", "", "hot path of the extender, such as http://127.0.0.1:8888")
	count := flag.Int("count", 100_000, "requests to send")
	workers := flag.Int("workers", 2, "connections, each used for one call at a time as kube-scheduler does")
	seed := flag.Uint64("seed", 1, "seed of the generator: the same seed sends the same requests")
	known := flag.Int("known-nodes", 1000, "how many of the nodes NAME-0000 ... the extender knows")
	prefix := flag.String("node-prefix", "node-", "NAME of those nodes")
	deadline := flag.Duration("deadline", 15*time.Minute, "give up after this long")
	flag.Parse()
	if *url == "" || *count < 1 || *workers < 1 {
		fmt.Fprintln(os.Stderr, "contract: -url is needed; -count and -workers must be positive")
		os.Exit(2)
	}
	report := run(*url, *count, *workers, *seed, Names{Prefix: *prefix, Known: *known}, *deadline)
	fmt.Printf("%d requests, %d rejected by Go, %d ranked, %d neutral, %.1f s\n",
		report.Requests, report.Rejected, report.Ranked, report.Neutral, report.Seconds)
	line, err := json.Marshal(report)
	if err != nil {
		fmt.Fprintln(os.Stderr, "contract:", err)
		os.Exit(2)
	}
	fmt.Println(string(line))
	if report.Rejected > 0 || report.Requests < *count {
		os.Exit(1)
	}
}

func run(url string, count, workers int, seed uint64, names Names, deadline time.Duration) Report {
	started := time.Now()
	reports := make([]Report, workers)
	var group sync.WaitGroup
	for worker := range workers {
		share := count / workers
		if worker < count%workers {
			share++
		}
		group.Go(func() {
			random := rand.New(rand.NewPCG(seed, uint64(worker)))
			reports[worker] = drive(url, share, random, names, started.Add(deadline))
		})
	}
	group.Wait()
	total := Report{Problems: []string{}, BySize: map[string]int{}, ByVariant: map[string]int{}}
	for _, part := range reports {
		total.add(part)
	}
	total.Seconds = time.Since(started).Seconds()
	return total
}

func (r *Report) add(part Report) {
	r.Requests += part.Requests
	r.Rejected += part.Rejected
	r.Neutral += part.Neutral
	r.Ranked += part.Ranked
	r.Hosts += part.Hosts
	r.Refused += part.Refused
	r.Reused += part.Reused
	for _, problem := range part.Problems {
		if len(r.Problems) < keptProblems {
			r.Problems = append(r.Problems, problem)
		}
	}
	for key, value := range part.BySize {
		r.BySize[key] += value
	}
	for key, value := range part.ByVariant {
		r.ByVariant[key] += value
	}
}

func drive(url string, count int, random *rand.Rand, names Names, until time.Time) Report {
	report := Report{BySize: map[string]int{}, ByVariant: map[string]int{}}
	dials := 0
	dialer := net.Dialer{Timeout: 5 * time.Second}
	transport := &http.Transport{
		MaxIdleConnsPerHost: 1,
		Dial: func(network, address string) (net.Conn, error) { // counted: a server that closes after each answer costs a dial a pod
			dials++
			return dialer.Dial(network, address)
		},
	}
	client := &http.Client{Transport: transport, Timeout: 30 * time.Second}
	defer transport.CloseIdleConnections()
	for range count {
		if time.Now().After(until) {
			report.problem("deadline", fmt.Errorf("only %d of %d requests were sent in time", report.Requests, count))
			break
		}
		request := Generate(random, names)
		report.Requests++
		report.BySize[request.SizeClass()]++
		report.ByVariant[request.Variant]++
		report.judge(client, url, request)
	}
	report.Reused = report.Requests - dials
	return report
}

func (r *Report) judge(client *http.Client, url string, request Request) {
	body, err := json.Marshal(request.Args)
	if err != nil {
		r.problem("cannot encode", err)
		return
	}
	answer, err := client.Post(url+"/prioritize", "application/json", bytes.NewReader(body))
	if err != nil {
		r.problem(request.Variant, err)
		return
	}
	defer answer.Body.Close()
	if answer.StatusCode == http.StatusBadRequest && !request.Named() {
		_, _ = io.Copy(io.Discard, answer.Body)
		r.Refused++ // neither Nodes nor NodeNames: no host to answer for, kube-scheduler never sends it
		return
	}
	if answer.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(io.LimitReader(answer.Body, 300))
		r.problem(request.Variant, fmt.Errorf("status %d: %s", answer.StatusCode, text))
		return
	}
	if answer.ContentLength < 0 {
		r.problem(request.Variant, fmt.Errorf("no Content-Length: kube-scheduler would open a connection for every pod"))
		return
	}
	raw, err := io.ReadAll(answer.Body)
	if err != nil {
		r.problem(request.Variant, err)
		return
	}
	var list extenderv1.HostPriorityList
	if err := json.NewDecoder(bytes.NewReader(raw)).Decode(&list); err != nil {
		r.problem(request.Variant, fmt.Errorf("rejected by Go: %w: %.200s", err, raw))
		return
	}
	ranked, err := Check(request.Hosts(), list)
	if err == nil {
		err = strict(raw)
	}
	if err != nil {
		r.problem(request.Variant, err)
		return
	}
	r.Hosts += len(list)
	if ranked {
		r.Ranked++
	} else {
		r.Neutral++
	}
}

func (r *Report) problem(what string, err error) {
	r.Rejected++
	if len(r.Problems) < keptProblems {
		r.Problems = append(r.Problems, fmt.Sprintf("%s: %v", what, err))
	}
}
