// The files for Docker Compose and Kubernetes: each is read, and what one part names, another part
// has. Their commands use options that the reference lists, and their job file is a good one.
#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <sstream>

#include <gtest/gtest.h>

#include "common/config/config_document.h"
#include "launcher/plan/job_config.h"

namespace pdjob::launcher {
namespace {

using Texts = std::vector<std::string>;
using Kind = ConfigNode::Kind;

std::string text_of(const std::string& path) {
  std::ifstream file(PDJOB_SOURCE_DIR "/" + path);
  EXPECT_TRUE(file.good()) << path;
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

ConfigNode tree_of(const std::string& text) {
  ConfigErrors errors("", text);
  auto root = parse_config_document(text, errors);
  EXPECT_TRUE(root.has_value()) << errors.text() << text;
  return root ? *root : ConfigNode{};
}

// Nothing where a key is missing. A key may have dots in it.
ConfigNode at(ConfigNode node, const Texts& keys) {
  for (const std::string& key : keys) {
    const ConfigEntry* const entry = node.find(key);
    ConfigNode below = entry == nullptr ? ConfigNode{} : entry->value;
    node = std::move(below);
  }
  return node;
}

std::set<std::string> names_in(const ConfigNode& list) {
  std::set<std::string> names;
  for (const ConfigNode& item : list.items) {
    names.insert(at(item, {"name"}).text);
  }
  return names;
}

// The options of a command line are those of the section of the reference, and `--set` has a key
// and a value.
void check_command(const ConfigNode& args, const std::string& file) {
  ASSERT_FALSE(args.items.empty()) << file;
  const std::string reference = text_of("docs/reference/command-line.md");
  const bool agent = args.items.front().text == "agent";
  const size_t begin = agent ? reference.find("\n## pdjob agent\n") : 0;
  const std::string section =
      reference.substr(begin, reference.find("\n## pdjob b", begin) - begin);
  for (size_t i = 0; i < args.items.size(); ++i) {
    const std::string& word = args.items[i].text;
    if (word.starts_with("--")) {
      EXPECT_NE(section.find("`" + word), std::string::npos) << file << ": " << word;
      ASSERT_LT(i + 1, args.items.size()) << file << ": " << word;
    }
    if (word == "--set") {
      EXPECT_NE(args.items[i + 1].text.find('='), std::string::npos) << file;
    }
  }
}

// The cluster that the command adds to the job file.
void check_job(const std::string& yaml, const ConfigNode& args) {
  Texts settings;
  for (size_t i = 0; i + 1 < args.items.size(); ++i) {
    if (args.items[i].text != "--set") {
      continue;
    }
    std::string setting = args.items[i + 1].text;
    for (const char* const word :
         {"$(POD_IP)", "${PDJOB_HEAD:?the address of the first machine}"}) {
      if (const size_t found = setting.find(word); found != std::string::npos) {
        setting.replace(found, std::string(word).size(), "10.0.0.1");
      }
    }
    if (const size_t found = setting.find("${PDJOB_NODES:-1}"); found != std::string::npos) {
      setting.replace(found, std::string::npos, "1");
    }
    settings.push_back(setting);
  }
  const auto config = parse_job_config("job.yaml", yaml, {.home = "/home/nobody"},
                                       JobUse::kAsWritten, settings_of(settings));
  ASSERT_TRUE(config.has_value()) << config.error().message;
  ASSERT_EQ(config->clusters.size(), 1U);
  EXPECT_EQ(config->clusters[0].kind, ClusterKind::kAgents);
  EXPECT_EQ(config->clusters[0].listen, "10.0.0.1:7700");
}

std::vector<ConfigNode> manifests() {
  std::vector<ConfigNode> documents;
  std::istringstream lines(text_of("configs/kubernetes/pdjob.yaml"));
  std::string document;
  std::string line;
  while (std::getline(lines, line)) {
    if (line == "---") {
      documents.push_back(tree_of(std::exchange(document, "")));
    } else {
      document += line + "\n";
    }
  }
  documents.push_back(tree_of(document));
  return documents;
}

ConfigNode manifest(const std::string& kind, const std::string& name) {
  for (const ConfigNode& each : manifests()) {
    if (at(each, {"kind"}).text == kind && at(each, {"metadata", "name"}).text == name) {
      return each;
    }
  }
  ADD_FAILURE() << "there is no " << kind << " " << name;
  return {};
}

const Texts kPod = {"spec", "template", "spec"};

TEST(Deployments, EachManifestHasItsKindAndItsName) {
  std::set<std::string> seen;
  for (const ConfigNode& each : manifests()) {
    const std::string kind = at(each, {"kind"}).text;
    static const std::map<std::string, std::string> versions = {{"ConfigMap", "v1"},
                                                                {"Service", "v1"},
                                                                {"Deployment", "apps/v1"},
                                                                {"StatefulSet", "apps/v1"}};
    ASSERT_TRUE(versions.contains(kind)) << kind;
    EXPECT_EQ(at(each, {"apiVersion"}).text, versions.at(kind));
    EXPECT_TRUE(seen.insert(kind + at(each, {"metadata", "name"}).text).second);
  }
}

TEST(Deployments, PodsAreFoundByTheirLabelsAndHaveTheVolumesThatTheyMount) {
  std::set<std::string> labels;
  for (const ConfigNode& each : manifests()) {
    const ConfigNode pod = at(each, kPod);
    if (pod.kind != Kind::kMapping) {
      continue;
    }
    const std::string own = json_of(at(each, {"spec", "template", "metadata", "labels"}));
    EXPECT_EQ(json_of(at(each, {"spec", "selector", "matchLabels"})), own);
    labels.insert(own);
    const std::set<std::string> volumes = names_in(at(pod, {"volumes"}));
    for (const ConfigNode& container : at(pod, {"containers"}).items) {
      EXPECT_FALSE(at(container, {"image"}).text.empty());
      for (const std::string& mounted : names_in(at(container, {"volumeMounts"}))) {
        EXPECT_TRUE(volumes.contains(mounted)) << mounted;
      }
      check_command(at(container, {"args"}), "pdjob.yaml");
    }
  }
  for (const ConfigNode& each : manifests()) {
    if (at(each, {"kind"}).text == "Service") {
      EXPECT_TRUE(labels.contains(json_of(at(each, {"spec", "selector"}))));
    }
  }
}

TEST(Deployments, TheLaunchersServicesAndProbeNamePortsOfItsContainer) {
  const ConfigNode pod = at(manifest("Deployment", "pdjob-launcher"), kPod);
  const ConfigNode container = at(pod, {"containers"}).items.at(0);
  const std::set<std::string> ports = names_in(at(container, {"ports"}));
  for (const char* const service : {"pdjob", "pdjob-launcher"}) {
    for (const ConfigNode& port : at(manifest("Service", service), {"spec", "ports"}).items) {
      EXPECT_TRUE(ports.contains(at(port, {"targetPort"}).text));
    }
  }
  EXPECT_TRUE(ports.contains(at(container, {"readinessProbe", "httpGet", "port"}).text));
}

TEST(Deployments, TheJobOfTheManifestIsAGoodJobThatWaitsForAllAgents) {
  const ConfigNode job = at(manifest("ConfigMap", "pdjob-job"), {"data", "job.yaml"});
  const ConfigNode pod = at(manifest("Deployment", "pdjob-launcher"), kPod);
  const ConfigNode args = at(at(pod, {"containers"}).items.at(0), {"args"});
  check_job(job.text, args);
  const ConfigNode agents = manifest("StatefulSet", "pdjob-agent");
  EXPECT_EQ(args.items.back().text, "clusters.pods.nodes=" + at(agents, {"spec", "replicas"}).text);
  EXPECT_EQ(at(agents, {"spec", "serviceName"}).text, "pdjob-agent");
  manifest("Service", "pdjob-agent");
}

TEST(Deployments, TheServicesOfComposeHaveImagesCommandsAndTheKeyThatTheyName) {
  const ConfigNode compose = tree_of(text_of("configs/containers/compose.yaml"));
  static const std::set<std::string> known = {
      "profiles",          "image",   "command", "user",    "network_mode", "volumes",
      "stop_grace_period", "restart", "ipc",     "ulimits", "deploy",       "environment"};
  const ConfigNode services = at(compose, {"services"});
  ASSERT_EQ(services.entries.size(), 2U);
  for (const ConfigEntry& service : services.entries) {
    for (const ConfigEntry& key : service.value.entries) {
      EXPECT_TRUE(known.contains(key.key)) << key.key;
    }
    EXPECT_FALSE(at(service.value, {"image"}).text.empty());
    check_command(at(service.value, {"command"}), "compose.yaml");
    EXPECT_NE(json_of(at(service.value, {"volumes"})).find(":/run/pdjob/agents.key:ro"),
              std::string::npos);
  }
  check_job(text_of("configs/vllm_1p1d.yaml"), at(services, {"launcher", "command"}));
}

TEST(Deployments, TheImageOfAnEngineCopiesThePackage) {
  const std::string text = text_of("configs/containers/Containerfile.vllm");
  EXPECT_NE(text.find("\nFROM vllm/vllm-openai:"), std::string::npos);
  EXPECT_NE(text.find("\nCOPY dist/pdjob_*_amd64.deb /packages/\n"), std::string::npos);
  EXPECT_NE(text.find("\nENTRYPOINT [\"pdjob\"]\n"), std::string::npos);
}

}  // namespace
}  // namespace pdjob::launcher
